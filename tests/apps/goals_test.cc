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
  GoalWatch watch(all_goals(), {.steps = 100, .eval_every = 50});
  EXPECT_EQ(watch.forecast_text(), "");
  for (int i = 1; i <= 60; ++i) watch.step(i, i <= 20 ? 90 : 30, 7);
  watch.evaluation(50, 3, 600);
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

TEST(GoalWatch, StepsAndCommitsOfBeforeCountWhatIsKnownOfThem) {
  GoalWatch watch(all_goals(), {.steps = 100, .eval_every = 50, .commits_memory = true, .commit_every = 10});
  watch.expect({.eval_seconds = 0, .commit_seconds = 1, .commit_bytes = 500});
  RunMetrics before;
  for (uint64_t step = 1; step <= 10; ++step) before.steps.push_back({step, {{"step_seconds", 1}, {"bytes.disk_write", 100}}});
  before.commits.push_back({10, 1, 0});
  watch.resume(before);
  EXPECT_DOUBLE_EQ(values(watch.forecast()).at("goals.disk_written"), 100 * 100 + 10 * 500);
}

TEST(GoalWatch, AFinishedRunIsMeasured) {
  GoalWatch watch(all_goals(), {.steps = 30});
  for (int i = 1; i <= 30; ++i) watch.step(i, i <= 14 ? 10 : 50, 50);
  watch.evaluation(30, 1.5, 10);
  const auto v = values(watch.forecast());
  EXPECT_DOUBLE_EQ(v.at("goals.max_hours"), (14 * 10 + 16 * 50 + 10) / 3600.0);
  EXPECT_DOUBLE_EQ(v.at("goals.step_seconds"), 50);  // the median of all steps
  EXPECT_DOUBLE_EQ(v.at("goals.disk_written"), 1500);
  std::string lines;
  for (const Goal& goal : watch.forecast()) lines += goal_line(goal) + "\n";
  EXPECT_THAT(lines, HasSubstr("goals.step_seconds MISSED: 50 s, limit 40 s"));
  EXPECT_THAT(lines, HasSubstr("goals.eval_loss met: 1.5, limit 2"));
  EXPECT_THAT(lines, HasSubstr("goals.disk_written MISSED: 1.5 kB, limit 1.0 kB"));
}

TEST(GoalWatch, AMissIsToldOnceAndAgainAfterItWasMet) {
  configs::GoalOptions goals;
  goals.step_seconds = 10;
  GoalWatch watch(goals, {.steps = 1000});
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
    before.steps.push_back({i, {{"step_seconds", 100}, {"disk.written", 10}}});
  before.evaluations.push_back({10, 2.5, 60});
  before.commits.push_back({10, 5, 40});
  GoalWatch watch(all_goals(), {.steps = 20, .eval_every = 10, .commits_memory = true, .commit_every = 10});
  watch.resume(before);
  for (uint64_t i = 11; i <= 20; ++i) watch.step(i, 50, 20);
  watch.evaluation(20, 2, 60);
  watch.commit(20, 7, 60);
  const auto v = values(watch.forecast());
  EXPECT_DOUBLE_EQ(v.at("goals.max_hours"), (1000 + 500 + 60 + 60 + 5 + 7) / 3600.0);
  EXPECT_DOUBLE_EQ(v.at("goals.disk_written"), 300 + 100);
}

// The state in memory is written by commits alone; the last one is at the end.
TEST(GoalWatch, CommitsOfTheStateInMemoryCount) {
  GoalWatch watch(all_goals(), {.steps = 25, .commits_memory = true, .commit_every = 10});
  watch.expect({.commit_seconds = 8, .commit_bytes = 400});
  const auto hours = [&] { return values(watch.forecast()).at("goals.max_hours"); };
  const auto written = [&] { return values(watch.forecast()).at("goals.disk_written"); };
  for (int i = 1; i <= 10; ++i) watch.step(i, 2, 0);
  EXPECT_DOUBLE_EQ(hours(), (25 * 2 + 3 * 8) / 3600.0);
  EXPECT_DOUBLE_EQ(written(), 1200);
  EXPECT_THAT(watch.forecast_text(), HasSubstr("goals.disk_written will be missed"));
  watch.commit(10, 4, 300);
  EXPECT_DOUBLE_EQ(hours(), (25 * 2 + 3 * 4) / 3600.0);  // as they turn out
  EXPECT_DOUBLE_EQ(written(), 900);
  for (int i = 11; i <= 25; ++i) {
    watch.step(i, 2, 0);
    EXPECT_DOUBLE_EQ(written(), 900) << i;
    if (i == 20) watch.commit(i, 4, 300);
  }
  watch.commit(25, 10, 90);
  EXPECT_DOUBLE_EQ(hours(), (25 * 2 + 4 + 4 + 10) / 3600.0);
  EXPECT_DOUBLE_EQ(written(), 690);
}

TEST(RunSchedule, CountsWhatIsStillToCome) {
  const RunSchedule s{.steps = 25, .eval_every = 5, .commits_memory = true, .commit_every = 10};
  EXPECT_EQ(s.evaluations_after(0), 5u);
  EXPECT_EQ(s.evaluations_after(5), 4u);
  EXPECT_EQ(s.evaluations_after(25), 0u);
  EXPECT_EQ(s.commits_after(0), 3u);
  EXPECT_EQ(s.commits_after(10), 2u);
  EXPECT_EQ(s.commits_after(24), 1u);
  EXPECT_EQ(s.commits_after(25), 0u);
  const RunSchedule at_the_end{.steps = 25, .commits_memory = true}, never{.steps = 25};
  EXPECT_EQ(at_the_end.commits_after(3), 1u);
  EXPECT_EQ(never.commits_after(3), 0u);
  EXPECT_EQ(never.evaluations_after(3), 0u);
}

TEST(GoalWatch, WithoutGoalsThereIsNothingToSay) {
  GoalWatch watch({}, {.steps = 10});
  for (int i = 1; i <= 10; ++i) watch.step(i, 1e9, 1e18);
  EXPECT_EQ(watch.forecast_text(), "");
  EXPECT_THAT(watch.forecast(), IsEmpty());
  EXPECT_THAT(watch.newly_missed(), IsEmpty());
  EXPECT_TRUE(goals_json({}, "measured").empty());
}

}  // namespace
}  // namespace sluice::apps
