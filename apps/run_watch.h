// What a run should tell without being asked: lanes that have become slower, figures that stand out.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "apps/guess_watch.h"
#include "apps/prediction_watch.h"
#include "apps/run_metrics.h"
#include "engine/outliers.h"
#include "engine/trainer.h"
#include "offload/lane_drift.h"

namespace sluice::apps {

struct RunEvent {
  uint64_t step;
  std::string kind;  // "drift", "prediction", "outlier", "evaluation", "loss_scale", "guess"
  std::string text;
};

// One line of metrics.jsonl.
std::string event_line(const RunEvent& event);

// Not thread-safe.
class RunWatch {
 public:
  // gives_up: of GuessWatch. measured: of PredictionWatch.
  explicit RunWatch(const offload::PlannedLanes& planned = {}, bool gives_up = false, bool measured = true)
      : drift_(planned), prediction_(planned.step_seconds, measured), guesses_(gives_up) {}
  // The steps before this start: what stands out is judged by them too. same_lanes: the lanes had the same work as now.
  void resume(const RunMetrics& earlier, bool same_lanes);
  std::vector<RunEvent> step(const engine::StepReport& report);
  std::vector<RunEvent> evaluation(uint64_t step, double loss);

  static constexpr uint64_t kOverflows = 10;  // in a row: advice

 private:
  offload::LaneDriftWatch drift_;
  PredictionWatch prediction_;
  GuessWatch guesses_;
  engine::OutlierWatch loss_{"loss"}, norm_{"grad_norm"};
  engine::EvalWatch eval_;
  uint64_t overflows_ = 0;  // of fp16, in a row
};

}  // namespace sluice::apps
