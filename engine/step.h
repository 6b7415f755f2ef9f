// One step in flight: its data, its hyperparameters and what it found out. One object per period of the plan.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "cpu_adam/adam.h"
#include "engine/loss_scaler.h"
#include "offload/store.h"

namespace sluice::engine {

// One micro-batch as the host holds it, ready to be copied to the device.
struct HostMicroBatch {
  // [4, B, T]: tokens, targets (-100: not trained), positions, and document starts (int32, see document_groups.h)
  std::vector<int64_t> ids;
  std::vector<std::vector<int32_t>> pieces;  // per row: where document pieces start
  uint64_t trained = 0;                      // targets that count
  uint64_t index = 0;                        // of this micro-batch in the global step, over all ranks
};

// An element of a gradient that is not finite.
struct NonFinite {
  uint32_t tile;
  uint64_t index;  // in the tile
};

// Written by begin_period (data), the compute stream (losses), the update lane (norms, clip, hashes); the plan's dependencies
// order these, so no lock is needed.
struct Step {
  uint64_t number = 0;  // counts from 1; 0: evaluation, or no step at all
  std::vector<HostMicroBatch> micro;
  uint64_t tokens = 0;   // inputs of the whole step
  uint64_t trained = 0;  // targets that count
  double scale = 0;      // 1 / trained: what the loss's gradient is multiplied with, beside loss_scale
  LossScale loss_scale;  // fp16's; known before the forward begins, with the gate of the step before
  double lr = 0;
  std::vector<cpu_adam::StepGroup> groups;
  offload::StepMeta meta;  // what the commit of this step stores

  bool writing = false;               // the first write of the step has been announced to the store

  std::vector<double> losses;      // by micro-batch: sum over its trained tokens; from the gate on those of all ranks
  std::vector<double> leaf_sums;   // squared norms of gradient leaves, model order
  std::optional<NonFinite> nonfinite;  // the first one of this rank's shard, in model order
  std::vector<uint64_t> hashes;    // extent hashes, [tile][part]
  double grad_norm = 0, clip = 1;  // by the gate; of gradients without the loss scale
  bool skipped = false;            // non-finite gradients under on_nonfinite: skip, or an overflow of fp16
  bool gated = false;              // the gate has said all this
  bool guessed = false;            // its plan updates before the gate
  bool redo = false;               // its updates were made on a wrong guess, and are to be made again
  bool redone = false;             // they have been
  uint32_t updates_left = 0;

  double loss() const {
    double sum = 0;
    for (double l : losses) sum += l;
    return trained == 0 ? 0 : sum / static_cast<double>(trained);
  }
};

}  // namespace sluice::engine
