// The update without v against Lion in double, and at the edges of the number range.
#include <limits>

#include "tests/cpu_adam/tile_case.h"

namespace sluice::cpu_adam {
namespace {

// Lion as published (arXiv 2302.06675), in double.
struct DoubleLion {
  double p, m = 0;
  void step(double g, const GroupOptions& o) {
    const double c = o.beta1 * m + (1 - o.beta1) * g;
    p -= o.lr * o.weight_decay * p + o.lr * ((c > 0) - (c < 0));
    m = o.beta2 * m + (1 - o.beta2) * g;
  }
};

GroupOptions options(double weight_decay) {
  return {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = weight_decay, .bias_correction = false};
}

TEST(LionMath, OneStepIsWithinAFewRoundingsOfDouble) {
  for (const double decay : {0.0, 0.1}) {
    TileData data({.count = 4099,
                   .split = false,
                   .lion = true,
                   .grad2 = GradType::bf16,
                   .groups = {make_step_group(options(decay), 12)},
                   .grad_scale = 0.25f});
    TileData before = data;
    CpuAdam({.threads = 1}).update(data.update());
    for (size_t i = 0; i < data.p.size(); ++i) {
      DoubleLion exact{before.p[i], before.m[i]};
      exact.step(before.gradient_sum(i) * 0.25, options(decay));
      ASSERT_NEAR(data.p[i], exact.p, 1.3e-7 * (std::abs(exact.p) + 1e-4)) << i;
      ASSERT_NEAR(data.m[i], exact.m, 3e-7 * (std::abs(before.m[i]) + std::abs(exact.m))) << i;
      ASSERT_NE(data.p[i], before.p[i]) << i;
    }
  }
}

TEST(LionMath, AThousandStepsStayCloseToDouble) {
  constexpr size_t kCount = 1024;
  TileData data({.count = kCount, .lion = true, .grad_scale = 1});
  std::mt19937 random(17);
  std::normal_distribution<float> normal;
  std::vector<DoubleLion> exact;
  std::vector<double> start;
  std::vector<float> signal;
  for (size_t i = 0; i < kCount; ++i) {
    data.m[i] = 0;
    start.push_back(data.master(i));
    exact.push_back({data.master(i)});
    signal.push_back(normal(random));
  }
  const CpuAdam adam({.threads = 1});
  const std::vector<StepGroup> groups{make_step_group(options(0.1), 1)};  // the same in every step
  for (int t = 1; t <= 1000; ++t) {
    for (size_t i = 0; i < kCount; ++i) {
      data.grad16[i] = base::float_to_bf16(1e-3f * (0.3f * signal[i] + normal(random)));
      exact[i].step(data.gradient_sum(i), options(0.1));
    }
    TileUpdate update = data.update();
    update.groups = groups;
    adam.update(update);
  }
  EXPECT_LT(relative_drift(data, exact, start), 1e-4);  // a sign that falls otherwise is a step of 2 lr; moved are some hundred
}

TEST(LionMath, WithoutDirectionOnlyDecayMovesAndNansAreCanonical) {
  const StepGroup group = make_step_group(options(0.1), 1);
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (Target target : all_targets()) {
    std::vector<float> p(6, 1.0f), m{0.0f, -0.0f, 0.0f, 0.0f, 0.0f, 0.0f}, g{0.0f, -0.0f, nan, infinity, -infinity, 1e-45f};
    const GroupSpan span{0, p.size(), 0};
    CpuAdam({.threads = 1, .target = target})
        .update({.state = {.p = p.data(), .m = m.data()},
                 .count = p.size(),
                 .grad = {g.data(), GradType::fp32},
                 .spans = {&span, 1},
                 .groups = {&group, 1}});
    const float decayed = static_cast<float>(1 - 1e-4 * 0.1);
    EXPECT_EQ(p[0], decayed);
    EXPECT_EQ(p[1], decayed);
    EXPECT_EQ(std::bit_cast<uint32_t>(p[2]), 0x7fc00000u);
    EXPECT_EQ(std::bit_cast<uint32_t>(m[2]), 0x7fc00000u);
    EXPECT_EQ(p[3], decayed - 1e-4f);
    EXPECT_EQ(p[4], decayed + 1e-4f);
    EXPECT_EQ(p[5], decayed);  // a tenth of the smallest number rounds to zero
  }
}

}  // namespace
}  // namespace sluice::cpu_adam
