#include "comm_suite.h"

namespace sluice::comm {
namespace {

using testing::HasSubstr;

TEST_P(CommSuite, CollectivesGiveWhatPlainLoopsGive) {
  for (const int world : {1, 2, 4}) expect_all_good(world, "collectives");
}

TEST_P(CommSuite, TheControlChannelMatchesExchangesByTopicAndOrder) {
  for (const int world : {1, 2, 4}) expect_all_good(world, "control");
}

TEST_P(CommSuite, ARankThatIsLateFailsTheOthersWithinTheDeadline) {
  if (!can_run(3)) GTEST_SKIP() << "too few devices";
  const Outcome late = expect_told(3, "late", "waited for");
  EXPECT_EQ(late.code, 9);  // it is told too, when it comes
  EXPECT_THAT(late.text, HasSubstr("this rank, 2, has failed"));
}

TEST_P(CommSuite, ARankThatIsLateToTheControlChannelFailsTheOthers) {
  if (!can_run(3)) GTEST_SKIP() << "too few devices";
  expect_told(3, "late_control", "have waited for it");
}

TEST_P(CommSuite, WhoKnowsThatItTakesLongWaitsLonger) {
  if (!can_run(2)) GTEST_SKIP() << "too few devices";
  expect_all_good(2, "patient");
}

TEST_P(CommSuite, ARankThatIsKilledFailsTheOthers) {
  if (!GetParam().processes) GTEST_SKIP() << "a thread cannot be killed alone";
  if (!can_run(2)) GTEST_SKIP() << "too few devices";
  for (const int world : {2, 4})
    if (can_run(world)) {
      EXPECT_EQ(expect_told(world, "dead", "ended without a word").code, 128 + 9);
    }
}

TEST_P(CommSuite, TheReasonOfARankThatFailsReachesTheOthers) {
  if (!can_run(2)) GTEST_SKIP() << "too few devices";
  for (const int world : {2, 4})
    if (can_run(world)) {
      EXPECT_EQ(expect_told(world, "failed", "disk error: /data: no space left").code, 7);
    }
}

TEST_P(CommSuite, ARankThatLeavesWithoutClosingHasFailed) {
  if (!can_run(3)) GTEST_SKIP() << "too few devices";
  EXPECT_EQ(expect_told(3, "left", "without saying why").code, 0);
}

TEST_P(CommSuite, RanksThatDisagreeAboutSizesFail) {
  if (!can_run(2)) GTEST_SKIP() << "too few devices";
  for (const Outcome& outcome : run(2, "mismatch")) EXPECT_TRUE(outcome.code == 1 || outcome.code == 9) << outcome.text;
}

}  // namespace
}  // namespace sluice::comm
