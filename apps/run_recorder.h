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
#include "apps/run_starts.h"
#include "apps/run_watch.h"
#include "apps/step_output.h"
#include "engine/trainer.h"

namespace sluice::apps {

// Must outlive the trainer that has its events. Called by the trainer as TrainerEvents says, one call at a time.
class RunRecorder {
 public:
  // planned: what is predicted of the run; none: nothing is. gives_up: it stops guessing where that does not pay. ranks_here: that write to
  // this machine's drives, each as much as this one.
  RunRecorder(const configs::RunConfig& config, const std::optional<PlannedRun>& planned, bool gives_up, uint64_t ranks_here);

  engine::TrainerEvents events();
  // Before the first step, when the store is open and the lines of steps that were not committed have been cut. The trainer must
  // outlive the steps. same_lanes: earlier steps of the run gave the lanes the same work. Error(disk).
  void open(const RunDir& run, const engine::Trainer& trainer, bool same_lanes);
  // What was measured of this machine before the run; none: nothing was.
  const std::optional<Ceilings>& ceilings() const { return ceilings_; }
  std::vector<Goal> goals() const { return goals_.forecast(); }

 private:
  using Clock = std::chrono::steady_clock;
  void step(const engine::StepReport& report);
  void evaluation(uint64_t step, const engine::EvalResult& result);
  void commit(const engine::CommitReport& report);
  void tell(const RunEvent& event);

  const configs::RunConfig& config_;
  StepFacts facts_;  // what does not change from step to step, and the counters at the end of the last one
  HiddenShare hidden_;
  std::optional<Ceilings> ceilings_;
  Pauses expected_;
  const engine::Trainer* trainer_ = nullptr;
  std::optional<MetricsFile> metrics_;
  Progress progress_;
  RunWatch watch_;
  GoalWatch goals_;
  Clock::time_point last_ = Clock::now();  // end of the last step or evaluation
};

}  // namespace sluice::apps
