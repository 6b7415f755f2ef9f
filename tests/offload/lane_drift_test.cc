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

std::vector<LaneDrift> feed(LaneDriftWatch& watch, size_t steps, const ExecutorStats& stats) {
  std::vector<LaneDrift> all;
  for (size_t i = 0; i < steps; ++i)
    for (const LaneDrift& drift : watch.add(stats)) all.push_back(drift);
  return all;
}

TEST(LaneDrift, ASteadyRunIsQuietAndALaneThatLagsIsToldOnce) {
  LaneDriftWatch watch;
  EXPECT_TRUE(feed(watch, 1, step(9, 9)).empty());  // the first step does not count
  EXPECT_TRUE(feed(watch, 200, step(1.0, 2.0)).empty());
  const auto drifts = feed(watch, 100, step(1.5, 2.2));
  ASSERT_EQ(drifts.size(), 1u);  // 2.2 is within 15 %
  EXPECT_EQ(drifts[0].lane, Lane::disk_write_state);
  EXPECT_EQ(drifts[0].against, LaneDrift::Against::start);
  EXPECT_NEAR(drifts[0].ratio, 1.5, 0.01);
  EXPECT_NE(drifts[0].cause.find("write cache"), std::string::npos);
}

TEST(LaneDrift, AfterARecoveryItIsToldAgain) {
  LaneDriftWatch watch;
  feed(watch, 60, step(1, 1));
  EXPECT_EQ(feed(watch, 30, step(1, 3)).size(), 1u);
  EXPECT_TRUE(feed(watch, 30, step(1, 1)).empty());
  EXPECT_EQ(feed(watch, 30, step(1, 3)).size(), 1u);
}

TEST(LaneDrift, AFewLaggingStepsAreNoDrift) {
  LaneDriftWatch watch;
  feed(watch, 80, step(1, 1));
  EXPECT_TRUE(feed(watch, LaneDriftWatch::kWindow / 2 - 1, step(5, 5)).empty());
  EXPECT_TRUE(feed(watch, 50, step(1, 1)).empty());
}

TEST(LaneDrift, MoreBytesInMoreTimeAreNoDrift) {
  LaneDriftWatch watch;
  feed(watch, 60, step(1, 1, 1000));
  EXPECT_TRUE(feed(watch, 60, step(2, 1, 2000)).empty());
}

TEST(LaneDrift, ALaneBehindThePlanIsToldAsSoonAsTheStartIsKnown) {
  std::array<double, kLanes> planned{};
  planned[static_cast<size_t>(Lane::compute)] = 1.0;
  LaneDriftWatch watch(planned);
  const auto drifts = feed(watch, LaneDriftWatch::kStart + 1, step(1, 1.3));
  ASSERT_EQ(drifts.size(), 1u);
  EXPECT_EQ(drifts[0].lane, Lane::compute);
  EXPECT_EQ(drifts[0].against, LaneDrift::Against::plan);
}

}  // namespace
}  // namespace sluice::offload
