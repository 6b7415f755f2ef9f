// The update against Adam in double, and at the edges of the number range.
#include <xmmintrin.h>

#include <limits>

#include "base/error.h"
#include "tests/cpu_adam/tile_case.h"

namespace sluice::cpu_adam {
namespace {

// Adam as published, in double, without any fused or rearranged step.
struct DoubleAdam {
  double p, m = 0, v = 0;
  void step(double g, const GroupOptions& o, uint64_t t) {
    const double bias1 = o.bias_correction ? 1 - std::pow(o.beta1, static_cast<double>(t)) : 1;
    const double bias2 = o.bias_correction ? 1 - std::pow(o.beta2, static_cast<double>(t)) : 1;
    if (o.decoupled) p -= o.lr * o.weight_decay * p;
    if (!o.decoupled) g += o.weight_decay * p;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    p -= o.lr / bias1 * m / (std::sqrt(v) / std::sqrt(bias2) + o.eps);
  }
};

TEST(AdamMath, StepConstantsAreRoundedOnceFromDouble) {
  const GroupOptions o{.lr = 3e-4, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};
  const StepGroup s = make_step_group(o, 1000);
  EXPECT_EQ(s.lr_decay, static_cast<float>(1 - 3e-4 * 0.1));
  EXPECT_EQ(s.l2, 0);
  EXPECT_EQ(s.beta2, 0.999f);
  EXPECT_EQ(s.one_minus_beta2, static_cast<float>(1 - 0.999));
  EXPECT_NE(s.one_minus_beta2, 1 - 0.999f);
  EXPECT_EQ(s.step_size, static_cast<float>(3e-4 / (1 - std::pow(0.9, 1000.0))));
  EXPECT_EQ(s.inv_sqrt_bias2, static_cast<float>(1 / std::sqrt(1 - std::pow(0.999, 1000.0))));
  const StepGroup l2 =
      make_step_group({.lr = 3e-4, .weight_decay = 0.1, .decoupled = false, .bias_correction = false}, 1);
  EXPECT_EQ(l2.lr_decay, 1);
  EXPECT_EQ(l2.l2, 0.1f);
  EXPECT_EQ(l2.step_size, 3e-4f);
  EXPECT_EQ(l2.inv_sqrt_bias2, 1);
  EXPECT_THROW(make_step_group(o, 0), base::Error);
}

TEST(AdamMath, OneStepIsWithinAFewRoundingsOfDouble) {
  for (const GroupOptions& o :
       {GroupOptions{.lr = 1e-3, .beta2 = 0.95, .weight_decay = 0.1},
        GroupOptions{.lr = 1e-3, .eps = 1e-6, .weight_decay = 0.1, .decoupled = false},
        GroupOptions{.lr = 1e-3, .bias_correction = false}}) {
    TileData data({.count = 4099,
                   .split = false,
                   .grad2 = GradType::bf16,
                   .groups = {make_step_group(o, 12)},
                   .grad_scale = 0.25f});
    TileData before = data;
    CpuAdam({.threads = 1}).update(data.update());
    for (size_t i = 0; i < data.p.size(); ++i) {
      DoubleAdam exact{before.p[i], before.m[i], before.v[i]};
      exact.step(before.gradient_sum(i) * 0.25, o, 12);
      const double scale = std::abs(exact.p) + std::abs(exact.p - before.p[i]);
      ASSERT_NEAR(data.p[i], exact.p, 4e-7 * scale) << i;
      ASSERT_NEAR(data.v[i], exact.v, 3e-7 * exact.v) << i;
      ASSERT_NEAR(data.m[i], exact.m, 3e-7 * (std::abs(before.m[i]) + std::abs(exact.m))) << i;
    }
  }
}

// ||p - p64|| / ||p64 - p0|| after many steps of bf16 gradients: signal and noise, scales that differ by
// element.
double drift(size_t count, int steps, double beta2) {
  const GroupOptions o{.lr = 1e-4, .beta1 = 0.9, .beta2 = beta2, .eps = 1e-8, .weight_decay = 0.1};
  TileData data({.count = count, .grad_scale = 1});
  std::mt19937 random(17);
  std::normal_distribution<float> normal;
  std::vector<DoubleAdam> exact;
  std::vector<double> start;
  std::vector<float> scale, signal;
  for (size_t i = 0; i < count; ++i) {
    data.m[i] = data.v[i] = 0;
    start.push_back(data.master(i));
    exact.push_back({data.master(i)});
    scale.push_back(1e-3f * std::exp(normal(random)));
    signal.push_back(normal(random));
  }
  const CpuAdam adam({.threads = 1});
  for (int t = 1; t <= steps; ++t) {
    for (size_t i = 0; i < count; ++i) {
      data.grad16[i] = base::float_to_bf16(scale[i] * (0.3f * signal[i] + normal(random)));
      exact[i].step(data.gradient_sum(i), o, t);
    }
    const std::vector<StepGroup> groups{make_step_group(o, t)};
    TileUpdate update = data.update();
    update.groups = groups;
    adam.update(update);
  }
  return relative_drift(data, exact, start);
}

TEST(AdamMath, DriftFromDoubleStaysSmall) {
  EXPECT_LT(drift(1024, 1000, 0.95), 2e-5);
}
TEST(AdamMath, SlowDriftFromDoubleStaysSmallOverLongMemory) {
  EXPECT_LT(drift(4096, 3000, 0.999), 4e-5);
}

struct One {
  uint16_t hi = 0;
  int16_t lo = 0;
  float m = 0, v = 0;
  float p() const { return base::join(hi, lo); }
};
One update_one(float p, float m, float v, float g, Target target, const StepGroup& group = default_group()) {
  const base::SplitFloat parts = base::split(p);
  One one{parts.hi, parts.lo, m, v};
  const GroupSpan span{0, 1, 0};
  CpuAdam({.threads = 1, .target = target})
      .update({.state = {&one.hi, &one.lo, nullptr, &one.m, &one.v},
               .count = 1,
               .grad = {&g, GradType::fp32},
               .spans = {&span, 1},
               .groups = {&group, 1}});
  return one;
}

TEST(AdamMath, ANanGradientShowsInHiAndIsCanonical) {
  for (Target target : all_targets())
    for (uint32_t bits : {0x7fffffffu, 0x7fc00000u, 0xffc12345u, 0x7f800001u}) {  // the first one is CUDA's
      const One one = update_one(1, 0, 0, std::bit_cast<float>(bits), target);
      EXPECT_TRUE(std::isnan(base::bf16_to_float(one.hi)));
      EXPECT_EQ(std::bit_cast<uint32_t>(one.p()), 0x7fc00000u);
      EXPECT_EQ(std::bit_cast<uint32_t>(one.m), 0x7fc00000u);
      EXPECT_EQ(std::bit_cast<uint32_t>(one.v), 0x7fc00000u);
    }
}

TEST(AdamMath, AHugeGradientOverflowsVAndMovesNothing) {
  const StepGroup no_decay = make_step_group({.lr = 1e-3}, 1);
  for (Target target : all_targets()) {
    const One one = update_one(1, 0, 0, 1e30f, target, no_decay);
    EXPECT_EQ(one.v, std::numeric_limits<float>::infinity());
    EXPECT_EQ(one.p(), 1);
  }
}

// A library may leave flush-to-zero on in the thread that calls.
TEST(AdamMath, SubnormalsAreKeptWhateverTheCallersMode) {
  constexpr unsigned kFlushAll = 0x8040;
  const unsigned before = _mm_getcsr();
  const float tiny = std::bit_cast<float>(0x00001234u);
  for (Target target : all_targets()) {
    _mm_setcsr(before | kFlushAll);
    const One one = update_one(tiny, tiny, tiny, 0, target);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(after & kFlushAll, kFlushAll);
    EXPECT_EQ(one.m, static_cast<float>(0.9 * tiny));
    EXPECT_EQ(one.v, static_cast<float>(0.95 * tiny));
    EXPECT_NE(one.m, 0);
  }
}

TEST(AdamMath, SubnormalsAreKeptInEveryWorker) {
  const size_t count = 8 * kLeaf;
  std::vector<float> p(count), m(count, std::bit_cast<float>(0x00001234u)), v(count), g(count);
  const GroupSpan span{0, count, 0};
  const StepGroup group = default_group();
  const unsigned before = _mm_getcsr();
  const CpuAdam adam({.threads = 2});
  _mm_setcsr(before | 0x8040);
  adam.update({.state = {nullptr, nullptr, p.data(), m.data(), v.data()},
               .count = count,
               .grad = {g.data(), GradType::fp32},
               .spans = {&span, 1},
               .groups = {&group, 1}});
  _mm_setcsr(before);
  EXPECT_EQ(std::count(m.begin(), m.end(), m[0]), static_cast<ptrdiff_t>(count));
  EXPECT_EQ(m[0], static_cast<float>(0.9 * std::bit_cast<float>(0x00001234u)));
}

}  // namespace
}  // namespace sluice::cpu_adam
