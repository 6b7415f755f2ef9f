#include "configs/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace sluice::configs {
namespace {

SchedulerOptions cosine() {
  SchedulerOptions s;
  s.type = SchedulerType::warmup_cosine;
  s.warmup_num_steps = 4;
  s.total_num_steps = 10;
  s.cos_min_ratio = 0.1;
  return s;
}

TEST(LrSchedule, NoneIsConstant) {
  EXPECT_EQ(lr_at(SchedulerOptions{}, 3e-4, 0), 3e-4);
  EXPECT_EQ(lr_at(SchedulerOptions{}, 3e-4, 1000000), 3e-4);
}

// Warm-up 0, 1/4, 2/4, 3/4; then 0.1 + 0.9 (1 + cos(pi k / 6)) / 2 for k = 1 ... 6, and 0.1 for ever.
TEST(LrSchedule, LinearWarmupThenCosine) {
  const double expected[] = {0,
                             0.25,
                             0.5,
                             0.75,
                             0.93971143170299740,  // cos = sqrt(3)/2
                             0.775,                // cos = 1/2
                             0.55,                 // cos = 0
                             0.325,                // cos = -1/2
                             0.16028856829700260,  // cos = -sqrt(3)/2
                             0.1,
                             0.1};
  for (uint64_t step = 0; step < std::size(expected); ++step)
    EXPECT_NEAR(lr_at(cosine(), 2e-5, step), 2e-5 * expected[step], 1e-19) << step;
  EXPECT_NEAR(lr_at(cosine(), 2e-5, 1ull << 40), 2e-6, 1e-19);
}

TEST(LrSchedule, CosineWarmupFromARatio) {
  SchedulerOptions s = cosine();
  s.warmup_min_ratio = 0.2;
  EXPECT_NEAR(lr_at(s, 1, 0), 0.2, 1e-15);
  EXPECT_NEAR(lr_at(s, 1, 1), 0.4, 1e-15);
  EXPECT_NEAR(lr_at(s, 1, 3), 0.8, 1e-15);
}

TEST(LrSchedule, LogWarmup) {
  SchedulerOptions s;
  s.type = SchedulerType::warmup;
  s.warmup_type = WarmupCurve::log;
  s.warmup_num_steps = 8;
  EXPECT_EQ(lr_at(s, 1, 0), 0);
  EXPECT_NEAR(lr_at(s, 1, 1), 1.0 / 3, 1e-15);  // log 2 / log 8
  EXPECT_NEAR(lr_at(s, 1, 3), 2.0 / 3, 1e-15);  // log 4 / log 8
  EXPECT_NEAR(lr_at(s, 1, 7), 1, 1e-15);
  EXPECT_EQ(lr_at(s, 1, 8), 1);
}

TEST(LrSchedule, WarmupBetweenTwoRates) {
  SchedulerOptions s;
  s.type = SchedulerType::warmup;
  s.warmup_num_steps = 4;
  s.warmup_min_lr = 0.2;
  EXPECT_NEAR(lr_at(s, 1, 2), 0.6, 1e-15);  // up to the optimizer's
  s.warmup_max_lr = 0.6;
  EXPECT_NEAR(lr_at(s, 1, 0), 0.2, 1e-15);
  EXPECT_NEAR(lr_at(s, 1, 2), 0.4, 1e-15);
  EXPECT_NEAR(lr_at(s, 1, 4), 0.6, 1e-15);
  EXPECT_NEAR(lr_at(s, 1, 400), 0.6, 1e-15);
}

TEST(LrSchedule, WarmupThenLinearDecay) {
  SchedulerOptions s;
  s.type = SchedulerType::warmup_decay;
  s.warmup_num_steps = 2;
  s.total_num_steps = 6;
  const double expected[] = {0, 0.5, 1, 0.75, 0.5, 0.25, 0, 0};
  for (uint64_t step = 0; step < std::size(expected); ++step)
    EXPECT_NEAR(lr_at(s, 1, step), expected[step], 1e-15) << step;
}

// DeepSpeed never warms up in fewer than two steps.
TEST(LrSchedule, WarmupOfOneStepTakesTwo) {
  SchedulerOptions s = cosine();
  s.warmup_num_steps = 1;
  EXPECT_EQ(lr_at(s, 1, 0), 0);
  EXPECT_EQ(lr_at(s, 1, 1), 0.5);
}

TEST(LrSchedule, UnknownLengthIsABug) {
  SchedulerOptions s = cosine();
  s.total_num_steps.reset();
  EXPECT_THROW(lr_at(s, 1, 4), base::Error);
  s.type = SchedulerType::warmup_decay;
  EXPECT_THROW(lr_at(s, 1, 4), base::Error);
}

}  // namespace
}  // namespace sluice::configs
