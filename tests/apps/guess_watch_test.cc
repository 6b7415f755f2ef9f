#include "apps/guess_watch.h"

#include <gmock/gmock.h>

namespace sluice::apps {
namespace {

using testing::HasSubstr;

std::vector<std::string> feed(GuessWatch& watch, size_t steps, bool guessed, bool redone) {
  std::vector<std::string> told;
  for (size_t i = 0; i < steps; ++i)
    if (auto text = watch.add(guessed, redone)) told.push_back(*text);
  return told;
}

TEST(GuessWatch, NearlyAlwaysWrongIsSaidOnceAndNamesTheSetting) {
  GuessWatch watch(false);
  EXPECT_TRUE(feed(watch, 4, true, false).empty());
  EXPECT_TRUE(feed(watch, GuessWatch::kWindow - 5, true, true).empty());
  const auto told = feed(watch, 100, true, true);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], testing::AllOf(HasSubstr("16 of the last 20 guesses were wrong"), HasSubstr("execution.overlap = \"forward\"")));
}

TEST(GuessWatch, RightGuessesAndNoGuessesAreQuiet) {
  GuessWatch right(false), none(false);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(feed(right, 1, true, i % 2 == 0).empty());
  EXPECT_TRUE(feed(none, 100, false, false).empty());
}

TEST(GuessWatch, GivingUpAndComingBackAreSaid) {
  GuessWatch watch(true);
  EXPECT_TRUE(feed(watch, 60, true, true).empty());  // the policy decides
  const auto up = feed(watch, 10, false, false), again = feed(watch, 10, true, false);
  ASSERT_EQ(up.size(), 1u);
  EXPECT_THAT(up[0], HasSubstr("20 of the last 20 guesses were wrong"));
  EXPECT_THAT(up[0], HasSubstr("updates wait for the norm"));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_THAT(again[0], HasSubstr("on the guess again"));
}

}  // namespace
}  // namespace sluice::apps
