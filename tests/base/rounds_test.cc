#include "base/rounds.h"

#include <gtest/gtest.h>

namespace sluice::base {
namespace {

TEST(Rounds, WarmsUpOnceAndCountsUnitsBySecond) {
  int calls = 0;
  const Rounds rounds = measure_rounds(5, 0.02, [&](double seconds) {
    ++calls;
    const double begin = monotonic_seconds();
    while (monotonic_seconds() - begin < seconds) {
    }
    return 1000 * (monotonic_seconds() - begin);
  });
  EXPECT_EQ(calls, 6);
  ASSERT_EQ(rounds.rates.size(), 5u);
  EXPECT_NEAR(rounds.median(), 1000, 20);
  EXPECT_GT(rounds.cpu_per_unit, 0);
  EXPECT_LT(rounds.cpu_per_unit, 0.0011);  // a spinning thread uses no more than its own time
}

TEST(Rounds, SpreadIsRelativeToTheMedian) {
  EXPECT_DOUBLE_EQ((Rounds{{8, 10, 12}, 0}).spread(), 0.4);
  EXPECT_EQ(Rounds{}.spread(), 0);
}

TEST(Rounds, RepeatsAtLeastOnce) {
  int calls = 0;
  EXPECT_EQ(repeat_for(0, [&] { ++calls; }), 1);
  EXPECT_EQ(calls, 1);
  EXPECT_GT(repeat_for(0.01, [] {}), 10);
}

}  // namespace
}  // namespace sluice::base
