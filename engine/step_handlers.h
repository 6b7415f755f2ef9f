// Connects a plan's operations to the model, the optimizer, the copies and the store.
#pragma once
#include <array>
#include <functional>

#include "engine/compute_ops.h"
#include "engine/transfer_ops.h"
#include "engine/update_ops.h"

namespace sluice::engine {

// What differs between training and evaluation.
class StepSource {
 public:
  virtual ~StepSource() = default;
  // Fills the step of this period: data and hyperparameters. False: no further period. Executor's loop thread.
  virtual bool begin(uint64_t period, Step& step) = 0;
  // All of the step's operations that count are done (durable: step: committed). Any thread; quick.
  virtual void end(const Step& step) = 0;
  // After each operation; any thread.
  virtual void progress() {}
};

class StepHandlers : public offload::OpHandlers {
 public:
  struct Options {
    bool alternate_slots = false;  // durable: step. Each committed step leaves the published slot for the other one
    bool commits = false;          // the plan publishes
  };
  StepHandlers(const StepShape& shape, ComputeOps& compute, TransferOps& transfer, UpdateOps* update, offload::Store& store,
               StepSource& source, const Options& options);

  // Slots of the first period of the next run: where the newest generation is, and where the next one goes.
  void set_slots(uint64_t first_period, const Slots& slots);
  const Slots& newest() const { return newest_; }  // read: the newest generation. Not while running
  void set_skipped(uint64_t skipped) { skipped_ = skipped; }  // of the run so far
  const std::vector<uint64_t>& hashes() const { return hashes_; }  // newest extents, [tile][part]

  bool begin_period(uint64_t period) override;
  void enqueue(const offload::OpRun& run, gpu::Stream& stream) override;
  std::optional<DiskRequest> request(const offload::OpRun& run) override;
  void run(const offload::OpRun& run) override;
  void done(const offload::OpRun& run) override;

 private:
  Step& step(uint64_t period) { return steps_[period % steps_.size()]; }
  Slots& slots(uint64_t period) { return slots_[period % slots_.size()]; }
  void after_gate(uint64_t period);
  void flush(Step& step);

  const StepShape& shape_;
  ComputeOps& compute_;
  TransferOps& transfer_;
  UpdateOps* update_;  // null when evaluating
  offload::Store& store_;
  StepSource& source_;
  const Options options_;
  std::array<Step, 8> steps_;  // periods alive at once are fewer
  std::array<Slots, 8> slots_;
  uint64_t first_period_ = 0;
  Slots newest_;
  uint64_t skipped_ = 0;
  std::vector<uint64_t> hashes_;
  uint32_t updates_ = 0;  // per step
};

}  // namespace sluice::engine
