// The leaf norm: accurate, and the same bits everywhere.
#include <limits>

#include "tests/cpu_adam/tile_case.h"

namespace sluice::cpu_adam {
namespace {

std::vector<double> norms(const CpuAdam& adam, TileData& data) {
  const TileUpdate tile = data.update();
  std::vector<double> sums((tile.count + kLeaf - 1) / kLeaf);
  adam.squared_norms(tile.grad, tile.grad2, tile.count, sums);
  return sums;
}

TEST(LeafNorm, IsAccurate) {
  for (const auto& [grad, grad2] :
       {std::pair{GradType::bf16, std::optional<GradType>()}, {GradType::fp16, {}}, {GradType::fp32, GradType::bf16}}) {
    TileData data({.count = 2 * kLeaf + 333, .grad = grad, .grad2 = grad2});
    const std::vector<double> sums = norms(CpuAdam({.threads = 1}), data);
    ASSERT_EQ(sums.size(), 3u);
    for (size_t leaf = 0; leaf < 3; ++leaf) {
      long double exact = 0;
      for (size_t i = leaf * kLeaf; i < std::min(data.m.size(), (leaf + 1) * kLeaf); ++i) {
        const long double g = data.gradient_sum(i);
        exact += g * g;
      }
      EXPECT_NEAR(sums[leaf], static_cast<double>(exact), 1e-12 * static_cast<double>(exact));
    }
  }
}

// The order is part of the contract: other devices and ranks reproduce it.
TEST(LeafNorm, AddsInTheDocumentedOrder) {
  TileData data({.count = 5000, .grad = GradType::fp32});
  std::vector<double> lanes(64);
  for (size_t i = 0; i < 5000; ++i) lanes[i % 64] += static_cast<double>(data.grad32[i]) * data.grad32[i];
  for (size_t w : {32, 16, 8, 4, 2, 1})
    for (size_t i = 0; i < w; ++i) lanes[i] += lanes[i + w];
  EXPECT_EQ(norms(CpuAdam({.threads = 1}), data), std::vector<double>{lanes[0]});
}

void expect_equal_everywhere(TileCase c) {
  TileData reference(c);
  const std::vector<double> expected = norms(CpuAdam({.threads = 1, .target = Target::scalar}), reference);
  for (size_t shift : {0, 1}) {
    c.shift = shift;
    TileData data(c);
    for (Target target : all_targets())
      for (int threads : {1, 3})
        ASSERT_EQ(norms(CpuAdam({.threads = threads, .target = target}), data), expected)
            << c.count << " " << name(target);
  }
}

TEST(LeafNorm, BitsDependNeitherOnTargetNorThreadsNorAlignment) {
  for (size_t count : {0, 1, 15, 63, 64, 65, 1000})
    for (GradType grad : {GradType::bf16, GradType::fp16, GradType::fp32})
      for (const auto& grad2 : {std::optional<GradType>(), std::optional(GradType::bf16), std::optional(GradType::fp16),
                                std::optional(GradType::fp32)})
        expect_equal_everywhere({.count = count, .grad = grad, .grad2 = grad2});
  expect_equal_everywhere({.count = kLeaf});
  expect_equal_everywhere({.count = 3 * kLeaf + 77, .grad2 = GradType::fp32});
}

TEST(LeafNorm, ANonFiniteGradientShows) {
  TileData data({.count = 2 * kLeaf + 9, .grad = GradType::fp32});
  for (Target target : all_targets())
    for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                      std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0xffc12345u)}) {
      data.grad32[kLeaf + 12345] = bad;
      const std::vector<double> sums = norms(CpuAdam({.threads = 1, .target = target}), data);
      EXPECT_TRUE(std::isfinite(sums[0]) && std::isfinite(sums[2]));
      const double expected = std::isnan(bad) ? std::numeric_limits<double>::quiet_NaN()
                                              : std::numeric_limits<double>::infinity();
      EXPECT_EQ(std::bit_cast<uint64_t>(sums[1]), std::bit_cast<uint64_t>(expected));
    }
}

TEST(LeafNorm, NoFloatOverflowsOrVanishes) {
  for (Target target : all_targets())
    for (float g : {std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min()}) {
      const std::vector<float> grad(100, g);
      double sum = 0;
      CpuAdam({.threads = 1, .target = target})
          .squared_norms({grad.data(), GradType::fp32}, {}, grad.size(), {&sum, 1});
      EXPECT_DOUBLE_EQ(sum, 100 * (static_cast<double>(g) * g));
    }
}

}  // namespace
}  // namespace sluice::cpu_adam
