// A training run: from a model folder and token files to a store that holds the trained state.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cpu_adam/adam.h"
#include "engine/eval_result.h"
#include "engine/loss_scaler.h"
#include "engine/model_source.h"
#include "engine/runtime.h"
#include "engine/step_shape.h"
#include "offload/executor.h"
#include "offload/plan_builder.h"
#include "offload/store.h"

namespace sluice::engine {

struct TrainerOptions {
  ModelSource model;
  RuntimeOptions runtime;
  std::filesystem::path train_tokens, eval_tokens;  // eval empty: no evaluation
  uint32_t sequence = 0, micro_batch = 1, accumulation = 1;
  uint64_t steps = 0, seed = 0, eval_every = 0;
  bool shuffle = true;  // false: documents in file order
  uint64_t commit_every = 0;  // durable: checkpoint. 0: only at the end
  std::function<double(uint64_t step)> lr;  // of step 1, 2, ...
  cpu_adam::GroupOptions optimizer;         // lr is replaced by the schedule
  double clip = 1.0;
  bool skip_nonfinite = false;
  double grace = 30;  // seconds that a stop may take to finish the step
  gpu::WireType wire = gpu::WireType::bf16;
  LossScalerOptions loss_scaler;  // of fp16; enabled exactly when that is the compute type
  offload::PlanOptions plan;  // tiers, pools, keep_*, rank and ZeRO stage; what follows from other options is filled in
  // Several ranks (model.world, plan.rank): makes the communicator.
  std::function<std::unique_ptr<comm::Comm>(const comm::CommOptions& options)> connect;
  bool host_boundaries = false;       // block inputs wait on the host for their backward
  uint64_t reduce_bucket = 4 << 20;   // several ranks: elements that a reduction works on at a time
  // A guessing placement defers all updates while more than this share of the guesses fails. None: it always guesses.
  std::optional<double> guess_limit;
  // Timing only: computations take their FLOP at this rate and compute nothing; nothing is committed. 0: the real thing.
  double emulated_compute = 0;
  uint64_t pinned = 0;        // bytes of RAM for tiles of tier nvme, from the embedding up
  uint64_t shadow = 0;        // bytes of RAM for old copies of tiles in RAM that are updated on a guess, from the head down
  offload::StoreOptions store;  // model_digest is filled in
};

struct StepReport {
  uint64_t step = 0, steps = 0, tokens = 0, trained = 0, samples = 0;
  double loss = 0, lr = 0, grad_norm = 0, clip = 1;
  double loss_scale = 0, next_loss_scale = 0;  // fp16: of this step and the next; 0: there is none
  bool skipped = false, committed = false;
  bool guessed = false;  // updated, in part at least, on the guess that the gradient is finite and not clipped
  bool redone = false;   // that was wrong, and the updates were made once more
  bool timing_only = false;  // there is no loss and no norm
  double seconds = 0;  // since the report before
  double eta_seconds = 0;
  offload::ExecutorStats stats;
};

// A commit of the state in memory (durable: checkpoint and none).
struct CommitReport {
  uint64_t step = 0;
  double seconds = 0;  // that training stood still
  uint64_t bytes = 0;  // written to the slot; 0: no step since the last commit has changed a weight
};

// All calls come from the trainer's thread, but on_step from any. Each may be empty.
struct TrainerEvents {
  std::function<void(const StepReport&)> on_step;
  std::function<void(const std::string& what, uint64_t done, uint64_t total)> on_progress;
  std::function<void(uint64_t step, const EvalResult&)> on_eval;
  std::function<void(const CommitReport&)> on_commit;
  const std::atomic<bool>* stop = nullptr;  // set by a signal: finish the step, commit, return
};

struct MemoryReport {
  std::vector<MemoryRow> rows;
  uint64_t gpu_have = 0, host_have = 0, disk_have = 0;
};

struct RunOutcome {
  offload::StepMeta meta;
  bool stopped = false;    // by the stop flag, after a commit
};

// Of the process so far; they only grow.
struct RunCounters {
  uint64_t host_peak = 0;        // bytes charged to memory.host
  io::QueueStats disk;
  double recompute_seconds = 0;  // ComputeOps
};

class Trainer {
 public:
  // Reads configuration, model header and token files, builds and checks the plan, allocates every arena and counts the
  // temporaries. Nothing on disk is touched. Errors: config, data, model, host_memory, device_memory.
  Trainer(const TrainerOptions& options, const TrainerEvents& events);
  ~Trainer();

  MemoryReport memory() const;
  const offload::Plan& plan() const;
  const offload::Layout& layout() const;
  std::string describe_device() const;  // and the attention kernel
  gpu::MemoryStats device_memory() const;  // peaks: since run() began
  comm::CommStats traffic() const;      // of collectives; several ranks
  RunCounters counters() const;            // from any thread
  // Floating-point operations that the model's step is made of on all ranks (engine/flops.h), what is computed again not counted.
  double flops_per_step() const;
  uint64_t commit_bytes() const;  // of a CommitReport to come

  uint64_t step() const;  // committed, of the open store
  // Creates the store from the model folder, or opens the existing one, and loads what has its home in memory.
  void create();
  offload::OpenReport open();

  // Trains to `steps`, evaluating and committing on the way. After an error the object cannot be used again.
  RunOutcome run(base::Trace* trace = nullptr);
  // Several ranks: all are done. Collective; without it a rank that ends has failed for the others.
  void finish();
  // Of the evaluation set, with the newest weights. Only with eval_tokens.
  EvalResult evaluate();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::engine
