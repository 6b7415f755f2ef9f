// The mean loss of a token file, by a forward-only plan.
#pragma once
#include <optional>

#include "engine/comm_ops.h"
#include "engine/compute_ops.h"
#include "engine/eval_result.h"
#include "engine/packing.h"
#include "engine/runtime.h"
#include "engine/step_buffers.h"
#include "engine/transfer_ops.h"
#include "offload/plan.h"
#include "offload/store.h"

namespace sluice::engine {

// Shares the buffers of a training run or owns the only use of them; not while training periods run.
class Evaluator {
 public:
  Evaluator(Runtime& runtime, Model& model, const StepShape& shape, StepBuffers& buffers, offload::Store& store, const offload::Plan& plan);
  // Several ranks: collective; each computes its share, all get the same result.
  // slot: where the newest weights are. progress(done, total) in samples; may be empty.
  EvalResult run(const Packing& data, int slot, const std::function<void(uint64_t, uint64_t)>& progress);

 private:
  Runtime& runtime_;
  const StepShape& shape_;
  offload::Store& store_;
  const offload::Plan& plan_;
  std::optional<CommOps> comm_;  // several ranks
  ComputeOps compute_;
  TransferOps transfer_;
};

}  // namespace sluice::engine
