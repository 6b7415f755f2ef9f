// Goals of a config beside a run at work.
#include "apps/goals.h"

#include <gmock/gmock.h>

namespace sluice::apps {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

configs::GoalOptions all_goals() {
  configs::GoalOptions goals;
  goals.max_hours = 1;
  goals.max_cost = 3;
  goals.price_per_hour = 2;
  goals.step_seconds = 40;
  goals.disk_written = 1000;
  goals.eval_loss = 2;
  return goals;
}

std::map<std::string, double> values(const std::vector<Goal>& goals) {
  std::map<std::string, double> found;
  for (const Goal& goal : goals)
    if (goal.value) found[goal.key] = *goal.value;
  return found;
}

TEST(GoalWatch, TheRestOfTheRunGoesAsTheLastStepsDid) {
  GoalWatch watch(all_goals(), 100, 50);
  EXPECT_EQ(watch.forecast_text(), "");
  for (int i = 1; i <= 60; ++i) watch.step(i, i <= 20 ? 90 : 30, 7);
  watch.evaluation(3, 600);
  const auto v = values(watch.forecast());
  // 20 slow steps, 80 fast ones, two evaluations.
  EXPECT_DOUBLE_EQ(v.at("goals.max_hours"), (20 * 90 + 80 * 30 + 2 * 600) / 3600.0);
  EXPECT_DOUBLE_EQ(v.at("goals.max_cost"), 2 * v.at("goals.max_hours"));
  EXPECT_DOUBLE_EQ(v.at("goals.step_seconds"), 30);
  EXPECT_DOUBLE_EQ(v.at("goals.disk_written"), 700);
  EXPECT_DOUBLE_EQ(v.at("goals.eval_loss"), 3);
  EXPECT_THAT(watch.forecast_text(), HasSubstr("goals.max_hours will be missed: 1.5 h, limit 1 h"));
  EXPECT_THAT(watch.forecast_text(), HasSubstr("goals.eval_loss not reached yet: 3, limit 2"));
  EXPECT_THAT(watch.forecast_text(), testing::Not(HasSubstr("step_seconds")));
}

TEST(GoalWatch, AFinishedRunIsMeasured) {
  GoalWatch watch(all_goals(), 30, 0);
  for (int i = 1; i <= 30; ++i) watch.step(i, i <= 14 ? 10 : 50, 50);
  watch.evaluation(1.5, 10);
  const auto v = values(watch.forecast());
  EXPECT_DOUBLE_EQ(v.at("goals.max_hours"), (14 * 10 + 16 * 50 + 10) / 3600.0);
  EXPECT_DOUBLE_EQ(v.at("goals.step_seconds"), 50);  // the median of all steps
  EXPECT_DOUBLE_EQ(v.at("goals.disk_written"), 1500);
  std::string lines;
  for (const Goal& goal : watch.forecast()) lines += goal_line(goal) + "\n";
  EXPECT_THAT(lines, HasSubstr("goals.step_seconds MISSED: 50 s, limit 40 s"));
  EXPECT_THAT(lines, HasSubstr("goals.eval_loss met: 1.5, limit 2"));
}

TEST(GoalWatch, AMissIsToldOnceAndAgainAfterItWasMet) {
  configs::GoalOptions goals;
  goals.step_seconds = 10;
  GoalWatch watch(goals, 1000, 0);
  uint64_t step = 0;
  size_t told = 0;
  const auto run = [&](int steps, double seconds) {
    for (int i = 0; i < steps; ++i) {
      watch.step(++step, seconds, 0);
      told += watch.newly_missed().size();
    }
  };
  run(3, 100);
  EXPECT_EQ(told, 0u);  // pools are being filled
  run(20, 100);
  EXPECT_EQ(told, 1u);
  run(20, 1);
  EXPECT_EQ(watch.forecast_text(), "goals met");
  run(20, 100);
  EXPECT_EQ(told, 2u);
}

TEST(GoalWatch, EarlierStartsOfTheRunCount) {
  RunMetrics before;
  for (uint64_t i = 1; i <= 10; ++i)
    before.steps.push_back({i, {{"step_seconds", 100}, {"bytes.disk_write", 10}}});
  before.evaluations.push_back({10, 2.5, 60});
  GoalWatch watch(all_goals(), 20, 10);
  watch.resume(before);
  for (uint64_t i = 11; i <= 20; ++i) watch.step(i, 50, 20);
  const auto v = values(watch.forecast());
  EXPECT_DOUBLE_EQ(v.at("goals.max_hours"), (1000 + 500 + 60) / 3600.0);
  EXPECT_DOUBLE_EQ(v.at("goals.disk_written"), 300);
}

TEST(GoalWatch, WithoutGoalsThereIsNothingToSay) {
  GoalWatch watch({}, 10, 0);
  for (int i = 1; i <= 10; ++i) watch.step(i, 1e9, 1e18);
  EXPECT_EQ(watch.forecast_text(), "");
  EXPECT_THAT(watch.forecast(), IsEmpty());
  EXPECT_THAT(watch.newly_missed(), IsEmpty());
  EXPECT_TRUE(goals_json({}, "measured").empty());
}

}  // namespace
}  // namespace sluice::apps
