// The steps of a training run: data, learning rate, progress, and when to stop.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

#include "engine/packing.h"
#include "engine/step_handlers.h"
#include "engine/trainer.h"

namespace sluice::engine {

// begin() runs on the executor's loop thread, end() and progress() on any; see StepSource.
class TrainSource : public StepSource {
 public:
  TrainSource(const TrainerOptions& options, const Packing& data, const offload::StepMeta& start, const TrainerEvents& events);

  // The next run goes on from `meta` up to step `end`. The executors are asked for statistics, and the first of them to abandon a step
  // that a stop request leaves no time for.
  void start(const offload::StepMeta& meta, uint64_t end, std::vector<offload::Executor*> executors);

  bool begin(uint64_t period, Step& step) override;
  void end(const Step& step) override;
  void progress() override;
  void number_update(Step& step, uint64_t update) override;

  const offload::StepMeta& meta() const { return done_; }  // after the last finished step; not while running
  void stop_before(uint64_t period) override { agreed_stop_ = std::min<uint64_t>(agreed_stop_, period); }
  // Of this process; and as all ranks know it.
  bool stop_wanted() const { return events_.stop != nullptr && *events_.stop; }
  bool stop_requested() const { return options_.model.world == 1 ? stop_wanted() : agreed_stop_ != UINT64_MAX; }

 private:
  double median_seconds() const;  // mutex_ held

  const TrainerOptions& options_;
  const Packing& data_;
  const TrainerEvents& events_;
  uint64_t end_ = 0;
  std::atomic<uint64_t> agreed_stop_ = UINT64_MAX;  // period that does not begin any more; several ranks
  std::vector<offload::Executor*> executors_;
  offload::StepMeta start_;  // before the first step of the run
  offload::StepMeta done_;
  std::mutex mutex_;             // guards all below
  std::vector<double> seconds_;  // of the last steps
  std::chrono::steady_clock::time_point last_end_;
  std::chrono::steady_clock::time_point stop_seen_{};  // when a stop request was first noticed
};

}  // namespace sluice::engine
