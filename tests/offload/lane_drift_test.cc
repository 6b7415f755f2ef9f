#include "offload/lane_drift.h"

#include <gtest/gtest.h>

namespace sluice::offload {
namespace {

ExecutorStats step(double disk_write, double compute, uint64_t bytes = 1000) {
  ExecutorStats stats;
  const auto set = [&](Lane lane, double busy, uint64_t b) {
    stats.busy[static_cast<size_t>(lane)] = busy;
    stats.bytes[static_cast<size_t>(lane)] = b;
  };
  set(Lane::disk_write_state, disk_write, bytes);
  set(Lane::compute, compute, 0);
  return stats;
}

std::vector<LaneDrift> feed(LaneDriftWatch& watch, size_t steps, const ExecutorStats& stats, double seconds = 10) {
  std::vector<LaneDrift> all;
  for (size_t i = 0; i < steps; ++i)
    for (const LaneDrift& drift : watch.add(stats, seconds)) all.push_back(drift);
  return all;
}

PlannedLanes planned(double step_seconds, double disk_write, double compute, uint64_t bytes = 1000) {
  const ExecutorStats stats = step(disk_write, compute, bytes);
  return {step_seconds, stats.busy, stats.bytes};
}

// Steps of ten seconds, unless said otherwise: a lane that is slower in two of them has been so for long enough.
TEST(LaneDrift, ASteadyRunIsQuietAndALaneThatLagsIsToldOnce) {
  LaneDriftWatch watch;
  EXPECT_TRUE(feed(watch, 1, step(9, 9)).empty());  // the first step does not count
  EXPECT_TRUE(feed(watch, 200, step(2.0, 4.0)).empty());
  const auto drifts = feed(watch, 100, step(3.0, 4.4));
  ASSERT_EQ(drifts.size(), 1u);  // 4.4 is within 15 %
  EXPECT_EQ(drifts[0].lane, Lane::disk_write_state);
  EXPECT_EQ(drifts[0].against, LaneDrift::Against::start);
  EXPECT_NEAR(drifts[0].ratio, 1.5, 0.01);
  EXPECT_NEAR(drifts[0].excess, 0.1, 0.01);
  EXPECT_NE(drifts[0].cause.find("write cache"), std::string::npos);
}

TEST(LaneDrift, ALaneThatComesAndGoesIsToldEverMoreSeldom) {
  LaneDriftWatch watch;
  feed(watch, 60, step(2, 2));
  size_t told = 0;
  for (int i = 0; i < 40; ++i) {
    told += feed(watch, 30, step(2, 6)).size();
    EXPECT_GE(told, 1u);
    told += feed(watch, 30, step(2, 2)).size();
  }
  EXPECT_GE(told, 3u);
  EXPECT_LE(told, 7u);
}

TEST(LaneDrift, AFewLaggingStepsAreNoDrift) {
  LaneDriftWatch watch;
  feed(watch, 80, step(2, 2));
  EXPECT_TRUE(feed(watch, LaneDriftWatch::kWindow / 2 - 1, step(9, 9)).empty());
  EXPECT_TRUE(feed(watch, 50, step(2, 2)).empty());
}

TEST(LaneDrift, AFewLaggingSecondsAreNoDrift) {
  LaneDriftWatch watch;
  feed(watch, 200, step(0.002, 0.002), 0.01);
  EXPECT_TRUE(feed(watch, 900, step(0.004, 0.002), 0.01).empty());
  EXPECT_EQ(feed(watch, 300, step(0.004, 0.002), 0.01).size(), 1u);
}

TEST(LaneDrift, MoreBytesInMoreTimeAreNoDrift) {
  LaneDriftWatch watch(planned(4, 2, 2, 1000));
  feed(watch, 60, step(2, 2, 1000));
  EXPECT_TRUE(feed(watch, 60, step(4, 2, 2000)).empty());
}

TEST(LaneDrift, ALaneBehindThePlanIsToldAfterAFewSteps) {
  LaneDriftWatch watch(planned(12, 0, 10));
  EXPECT_TRUE(feed(watch, LaneDriftWatch::kLeast, step(1, 13), 15).empty());
  const auto drifts = feed(watch, 2, step(1, 13), 15);
  ASSERT_EQ(drifts.size(), 1u);
  EXPECT_EQ(drifts[0].lane, Lane::compute);
  EXPECT_EQ(drifts[0].against, LaneDrift::Against::plan);
}

TEST(LaneDrift, WhatTakesLittleOfTheStepIsOfNoConsequence) {
  LaneDriftWatch of_start, of_plan(planned(10, 0.1, 5));
  feed(of_start, 80, step(0.02, 2));
  EXPECT_TRUE(feed(of_start, 80, step(0.4, 2)).empty());
  EXPECT_EQ(feed(of_start, 80, step(0.6, 2)).size(), 1u);
  EXPECT_TRUE(feed(of_plan, 200, step(0.5, 5), 11).empty());
}

TEST(LaneDrift, ARunThatIsFasterThanPlannedHasNotDriftedFromThePlan) {
  LaneDriftWatch watch(planned(10, 1, 5));
  EXPECT_TRUE(feed(watch, 200, step(4, 5), 5.7).empty());
  EXPECT_EQ(feed(watch, 200, step(4, 5), 11).size(), 1u);
}

TEST(LaneDrift, TheFirstStepOfALaterStartDoesNotCount) {
  LaneDriftWatch watch;
  feed(watch, 60, step(2, 2));
  watch.restart();
  feed(watch, 10, step(4, 2));
  watch.restart();
  EXPECT_TRUE(feed(watch, 1, step(4, 2)).empty());
  EXPECT_EQ(feed(watch, 20, step(4, 2)).size(), 1u);
}

TEST(LaneDrift, WhatAnEarlierStartWasBesideThePlanIsToldInThisOne) {
  LaneDriftWatch watch(planned(10, 1, 5));
  EXPECT_EQ(feed(watch, 60, step(4, 5), 11).size(), 1u);
  watch.restart();
  EXPECT_EQ(feed(watch, 60, step(4, 5), 11).size(), 1u);
}

}  // namespace
}  // namespace sluice::offload
