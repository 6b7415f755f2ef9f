// The arithmetic of the device's optimizer (gpu/adam_math.h) against cpu_adam, bit for bit; and what copies may touch.
#include "gpu/host_kernels.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "cpu_adam/adam.h"
#include "gpu/host_registry.h"
#include "random_state.h"

namespace sluice::gpu {
namespace {

cpu_adam::Gradient on_cpu(const void* data, WireType type) {
  return {data, type == WireType::bf16   ? cpu_adam::GradType::bf16
                : type == WireType::fp16 ? cpu_adam::GradType::fp16
                                         : cpu_adam::GradType::fp32};
}

cpu_adam::StepGroup on_cpu(const AdamFactors& f) {
  return {f.lr_decay, f.l2, f.beta1, f.one_minus_beta1, f.beta2, f.one_minus_beta2, f.eps, f.step_size, f.inv_sqrt_bias2};
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
T* data_or_null(std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

void compare_adam(const cpu_adam::CpuAdam& reference, Master master, bool tied, bool raw, WireType type, bool lion) {
  RandomState ours(70001, master, tied, raw, type), theirs(70001, master, tied, raw, type);
  AdamRun run = ours.run();
  run.hi = data_or_null(ours.hi), run.lo = data_or_null(ours.lo), run.p = data_or_null(ours.p);
  run.m = ours.m.data(), run.v = lion ? nullptr : ours.v.data(), run.half = data_or_null(ours.half);
  run.grad.first = ours.grad.data(), run.grad.second = data_or_null(ours.grad2);
  adam(run);

  const std::vector<cpu_adam::StepGroup> groups = {on_cpu(run.factors)};
  const std::vector<cpu_adam::GroupSpan> spans = {{0, theirs.count, 0}};
  cpu_adam::TileUpdate tile;
  tile.state = {data_or_null(theirs.hi), data_or_null(theirs.lo), data_or_null(theirs.p), theirs.m.data(), lion ? nullptr : theirs.v.data(),
                data_or_null(theirs.half)};
  tile.count = theirs.count;
  tile.grad = on_cpu(theirs.grad.data(), type);
  if (tied) tile.grad2 = on_cpu(theirs.grad2.data(), type);
  tile.grad_scale = run.grad_scale;
  tile.spans = spans;
  tile.groups = groups;
  reference.update(tile);
  EXPECT_TRUE(same_bits(ours.hi, theirs.hi) && same_bits(ours.lo, theirs.lo) && same_bits(ours.p, theirs.p) &&
              same_bits(ours.m, theirs.m) && same_bits(ours.v, theirs.v) && same_bits(ours.half, theirs.half))
      << "master " << static_cast<int>(master) << ", tied " << tied << ", raw " << raw << ", lion " << lion << ", " << wire_bytes(type) << " bytes";
}

TEST(HostKernels, AdamHasTheBitsOfCpuAdam) {
  const cpu_adam::CpuAdam reference({.threads = 1, .target = cpu_adam::Target::best});
  for (const Master master : {Master::split, Master::fp32, Master::fp32_and_half})
    for (const bool tied : {false, true})
      for (const bool raw : {false, true})
        for (const WireType type : {WireType::bf16, WireType::fp16, WireType::fp32})
          for (const bool lion : {false, true}) compare_adam(reference, master, tied, raw, type, lion);
}

TEST(HostKernels, LeafNormsHaveTheBitsOfCpuAdam) {
  static_assert(kLeafElements == cpu_adam::kLeaf);
  const cpu_adam::CpuAdam reference({.threads = 1, .target = cpu_adam::Target::best});
  for (const size_t count : {size_t{1}, size_t{100}, 3 * kLeafElements + 12345})
    for (const bool raw : {false, true})
      for (const WireType type : {WireType::bf16, WireType::fp16, WireType::fp32}) {
        RandomState state(count, Master::split, true, raw, type);
        const size_t leaves = (count + kLeafElements - 1) / kLeafElements;
        std::vector<double> ours(leaves), theirs(leaves);
        leaf_norms(ours.data(), {state.grad.data(), state.grad2.data(), type}, count);
        reference.squared_norms(on_cpu(state.grad.data(), type), on_cpu(state.grad2.data(), type), count, theirs);
        EXPECT_TRUE(same_bits(ours, theirs)) << count << " raw " << raw;
      }
}

TEST(HostKernels, ConversionsAreThoseOfBase) {
  for (uint64_t wide = 0; wide < (uint64_t{1} << 32); wide += 4099) {
    const auto bits = static_cast<uint32_t>(wide);
    const auto value = std::bit_cast<float>(bits);
    ASSERT_EQ(math::to_bf16(value), base::float_to_bf16(value)) << bits;
    ASSERT_EQ(math::to_half(value), base::float_to_fp16(value)) << bits;
    const auto hi = static_cast<uint16_t>(bits >> 16);
    const auto lo = static_cast<int16_t>(bits & 0xffff);
    ASSERT_EQ(math::to_bits(math::join(hi, lo)), std::bit_cast<uint32_t>(base::join(hi, lo))) << bits;
  }
}

using Parts = std::vector<std::pair<size_t, size_t>>;
Parts parts_of(const HostRegistry& registry, const std::byte* begin, size_t bytes) {
  Parts parts;
  registry.for_each_part(begin, bytes, [&](size_t offset, size_t part) { parts.emplace_back(offset, part); });
  return parts;
}

TEST(HostRegistry, CopiesAreCutWherePiecesMeet) {
  std::vector<std::byte> memory(1000);
  std::byte* const at = memory.data();
  HostRegistry registry;
  registry.add({at, 300});
  registry.add({at + 300, 300});
  registry.add({at + 700, 300});
  EXPECT_EQ(parts_of(registry, at, 300), (Parts{{0, 300}}));
  EXPECT_EQ(parts_of(registry, at + 299, 2), (Parts{{0, 1}, {1, 1}}));
  EXPECT_EQ(parts_of(registry, at + 10, 590), (Parts{{0, 290}, {290, 300}}));
  EXPECT_EQ(parts_of(registry, at + 10, 0), Parts{});
  EXPECT_THROW(parts_of(registry, at + 500, 101), base::Error);   // into the gap
  EXPECT_THROW(parts_of(registry, at + 600, 1), base::Error);     // in the gap
  EXPECT_THROW(parts_of(registry, at + 999, 2), base::Error);     // past the end
  EXPECT_TRUE(registry.contains(at + 999));
  EXPECT_FALSE(registry.contains(at + 1000));
  registry.remove(at + 300);
  EXPECT_FALSE(registry.contains(at + 300));
  registry.remove(at + 300);
}

TEST(HostRegistry, ARangeIsRegisteredOnce) {
  std::vector<std::byte> memory(1000);
  std::byte* const at = memory.data();
  HostRegistry registry;
  registry.add({at + 100, 100});
  EXPECT_THROW(registry.add({at + 100, 100}), base::Error);
  EXPECT_THROW(registry.add({at + 199, 1}), base::Error);
  EXPECT_THROW(registry.add({at, 101}), base::Error);
  registry.add({at, 100});
  registry.add({at + 200, 1});
  registry.add({at + 500, 0});
}

}  // namespace
}  // namespace sluice::gpu
