// Connects a plan's operations to the model, the optimizer, the copies and the store.
#pragma once
#include <array>
#include <optional>

#include "engine/comm_ops.h"
#include "engine/compute_ops.h"
#include "engine/guess_policy.h"
#include "engine/step_exchange.h"
#include "engine/transfer_ops.h"
#include "engine/update_ops.h"

namespace sluice::engine {

// What differs between training and evaluation.
class StepSource {
 public:
  virtual ~StepSource() = default;
  // Fills the step of this period: data and hyperparameters. False: no further period. Executor's loop thread.
  virtual bool begin(uint64_t period, Step& step) = 0;
  // All of the step's operations that count are done (durable: step: committed). In the order of steps; any thread; quick.
  virtual void end(const Step& step) = 0;
  // After each operation; any thread.
  virtual void progress() {}
  // fp16: the step is this update of the optimizer, counted from 1: the number of steps that were not skipped. Before its forward
  // begins, and perhaps more than once.
  virtual void number_update(Step& step, uint64_t update) { (void)step, (void)update; }
  // A rank wants to stop: no period begins from this one on. On every rank from the gate of the same step.
  virtual void stop_before(uint64_t period) { (void)period; }
};

class StepHandlers : public offload::OpHandlers {
 public:
  struct Options {
    bool alternate_slots = false;  // durable: step. Each committed step leaves the published slot for the other one
    bool commits = false;          // the plan publishes
    bool timing_only = false;      // it only goes through the motions: nothing may be published
    LossScaler scaler = LossScaler(LossScalerOptions{});
  };
  StepHandlers(const StepShape& shape, ComputeOps& compute, TransferOps& transfer, UpdateOps* update, offload::Store& store,
               StepSource& source, const Options& options);

  // Several ranks; both outlive the object.
  // exchange may be null: no gate.
  void connect(CommOps* comm, StepExchange* exchange) {
    comm_ = comm;
    exchange_ = exchange;
  }
  // None of the below while running.
  // Where the newest generation is, and where the next one goes.
  void set_newest(const Slots& slots) {
    newest_ = slots;
    changed_ = false;
  }
  bool changed() const { return changed_; }  // a step has changed weights since set_newest
  const Slots& newest() const { return newest_; }
  // The next run begins with this period, and no step is pending. guesses: its plan updates before the gate, on the guess that the gradient
  // is finite and not clipped. The executor is told to end with a period whose guess was wrong, or after which the policy (may be null) wants
  // another plan.
  void start(uint64_t first_period, offload::Executor* executor, bool guesses, GuessPolicy* policy);
  // The next run is of a follow-up plan, for the step of the period before.
  void start_follow_up(uint64_t period);
  // The next run goes on with this period after follow-ups of the step before it.
  void go_on(uint64_t first_period);
  // The period's step must be redone.
  bool redo_wanted(uint64_t period) { return step(period).redo; }
  // Of the run so far.
  void set_progress(uint64_t skipped, const LossScale& scale) { progress_ = {skipped, scale}; }
  const std::vector<uint64_t>& hashes() const { return hashes_; }  // newest extents, [tile][part]; not when the plan commits

  bool begin_period(uint64_t period) override;
  void enqueue(const offload::OpRun& run, gpu::Stream& stream) override;
  std::optional<DiskRequest> request(const offload::OpRun& run) override;
  void run(const offload::OpRun& run) override;
  void done(const offload::OpRun& run) override;

 private:
  // What the gates so far have found.
  struct Progress {
    uint64_t skipped = 0;
    LossScale scale;
  };
  Step& step(uint64_t period) { return steps_[period % steps_.size()]; }
  Slots& slots(uint64_t period) { return slots_[period % slots_.size()]; }
  // Fills in what the gate of the step before has decided; no forward begins before it.
  void begin_forward(uint64_t period);
  Step& step_of(const offload::OpRun& run) { return step(run.period - run.op().previous_step); }
  Slots after(const Slots& accepted) const;  // slots of the step that follows an accepted one
  void after_gate(uint64_t period);
  void flush(Step& step);
  void publish(Step& step);
  void end_updated(const Step& step);

  const StepShape& shape_;
  ComputeOps& compute_;
  TransferOps& transfer_;
  UpdateOps* update_;  // null when evaluating
  offload::Store& store_;
  StepSource& source_;
  const Options options_;
  CommOps* comm_ = nullptr;            // null: one rank
  StepExchange* exchange_ = nullptr;   // null: one rank
  offload::Executor* executor_ = nullptr;
  GuessPolicy* policy_ = nullptr;
  bool guesses_ = false;
  std::array<Step, 8> steps_;  // periods alive at once are fewer
  std::array<Slots, 8> slots_;
  uint64_t first_period_ = 0;
  std::optional<uint64_t> follow_up_;  // the period of a follow-up plan at work
  Slots newest_;
  bool changed_ = false;
  Progress progress_;  // after the last gate
  std::vector<uint64_t> hashes_;
  uint32_t updates_ = 0;  // per step
};

}  // namespace sluice::engine
