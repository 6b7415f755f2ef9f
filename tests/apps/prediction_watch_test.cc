#include "apps/prediction_watch.h"

#include <gmock/gmock.h>

namespace sluice::apps {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> feed(PredictionWatch& watch, size_t steps, double seconds) {
  std::vector<std::string> told;
  for (size_t i = 0; i < steps; ++i)
    if (auto text = watch.add(seconds)) told.push_back(*text);
  return told;
}

TEST(PredictionWatch, SaysOnceThatThePlanIsOffInEitherDirection) {
  for (const double planned : {2.5, 0.5}) {
    PredictionWatch watch(planned);
    EXPECT_TRUE(feed(watch, PredictionWatch::kWarmUp + PredictionWatch::kSteps - 1, 1).empty());
    const auto told = feed(watch, 100, 1);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_THAT(told[0], HasSubstr(planned > 1 ? "1.0 s, 60 % less than the 2.5 s that were planned" : "1.0 s, 100 % more than the 500 ms"));
    EXPECT_THAT(told[0], HasSubstr("--measure"));
  }
}

TEST(PredictionWatch, OfANamedProfileItSaysThatItIsNotOfThisMachine) {
  PredictionWatch watch(2.5, /*measured=*/false);
  const auto told = feed(watch, 100, 1);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], AllOf(HasSubstr("faster than the profile that --machine names"), Not(HasSubstr("--measure"))));
}

TEST(PredictionWatch, ACloseOneASlowStartAndNoPlanAreQuiet) {
  PredictionWatch close(1.1), slow_start(1), none(0);
  EXPECT_TRUE(feed(close, 50, 1).empty());
  feed(slow_start, PredictionWatch::kWarmUp, 30);
  EXPECT_TRUE(feed(slow_start, 50, 1).empty());
  EXPECT_TRUE(feed(none, 50, 1).empty());
}

}  // namespace
}  // namespace sluice::apps
