#include "apps/run_watch.h"

#include <gmock/gmock.h>

namespace sluice::apps {
namespace {

using offload::Lane;
using offload::LaneDriftWatch;
using testing::HasSubstr;

constexpr auto kReads = static_cast<size_t>(Lane::disk_state);

engine::StepReport report(uint64_t step, double reads, double loss) {
  engine::StepReport r;
  r.step = step;
  r.seconds = 10;
  r.loss = loss;
  r.grad_norm = 1 + 0.01 * static_cast<double>(step % 7);
  r.stats.busy[kReads] = reads;
  r.stats.bytes[kReads] = 1000;
  return r;
}

double usual_loss(uint64_t step) { return 3 + 0.01 * static_cast<double>(step % 5); }

// What a run of 100 steps left behind.
RunMetrics earlier(double reads) {
  RunMetrics metrics;
  for (uint64_t step = 1; step <= 100; ++step) {
    const engine::StepReport r = report(step, reads, usual_loss(step));
    metrics.steps.push_back({step,
                             {{"step_seconds", r.seconds}, {"loss", r.loss}, {"grad_norm", r.grad_norm}, {"skipped", 0}, {"lanes.disk_state.seconds", reads},
                              {"lanes.disk_state.bytes", 1000}}});
  }
  metrics.evaluations = {{50, 3.0}, {100, 3.1}};
  return metrics;
}

std::vector<RunEvent> go_on(RunWatch& watch, double reads) {
  std::vector<RunEvent> events;
  for (uint64_t step = 101; step <= 125; ++step)
    for (RunEvent& event : watch.step(report(step, reads, step == 103 ? 9 : usual_loss(step)))) events.push_back(std::move(event));
  return events;
}

TEST(RunWatch, ALaterStartKnowsTheStepsBeforeIt) {
  RunWatch fresh, resumed;
  EXPECT_TRUE(go_on(fresh, 5.0).empty());
  EXPECT_TRUE(fresh.evaluation(125, 3.2).empty());
  resumed.resume(earlier(2.5), true);
  const auto events = go_on(resumed, 5.0);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, "outlier");
  EXPECT_EQ(events[0].step, 103u);
  EXPECT_EQ(events[1].kind, "drift");
  EXPECT_THAT(events[1].text, HasSubstr("lane disk_state takes 100 % longer than in the first 50 steps, 25 % of the step's time"));
  EXPECT_EQ(resumed.evaluation(125, 3.2).size(), 1u);
}

TEST(RunWatch, StepsWithOtherWorkSayNothingOfTheLanes) {
  RunWatch watch;
  watch.resume(earlier(2.5), false);
  const auto events = go_on(watch, 5.0);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, "outlier");
}

}  // namespace
}  // namespace sluice::apps
