// What a training run tells and writes down while it is at work: lines on the terminal, metrics.jsonl, events, goals.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "apps/goals.h"
#include "apps/planned_run.h"
#include "apps/progress.h"
#include "apps/run_dir.h"
#include "apps/run_watch.h"
#include "apps/step_output.h"
#include "engine/trainer.h"

namespace sluice::apps {

// Must outlive the trainer that has its events. Called by the trainer as TrainerEvents says, one call at a time.
class RunRecorder {
 public:
  // planned: what is predicted of the run; none: nothing is.
  RunRecorder(const configs::RunConfig& config, const std::optional<PlannedRun>& planned);

  engine::TrainerEvents events();
  // Before the first step, when the lines of steps that were not committed have been cut. Error(disk).
  void open(const RunDir& run);
  std::vector<Goal> goals() const { return goals_.forecast(); }

 private:
  using Clock = std::chrono::steady_clock;
  void step(const engine::StepReport& report);
  void evaluation(uint64_t step, const engine::EvalResult& result);
  void tell(const RunEvent& event);

  const configs::RunConfig& config_;
  const std::optional<double> predicted_;  // seconds of a step
  std::optional<MetricsFile> metrics_;
  Progress progress_;
  RunWatch watch_;
  GoalWatch goals_;
  Clock::time_point last_ = Clock::now();  // end of the last step or evaluation
};

}  // namespace sluice::apps
