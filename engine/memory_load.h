// Fills what has its home in memory (RAM tiers, resident weights) from the published slot, and writes it back at a commit.
#pragma once
#include <functional>
#include <vector>

#include "engine/runtime.h"
#include "engine/step_buffers.h"
#include "offload/store.h"

namespace sluice::engine {

using Progress = std::function<void(uint64_t done, uint64_t total)>;

// Reads every home of weights and state, and every resident weight, from `slot`; of several ranks each its own shard, and what the ZeRO stage
// keeps of the other shards comes from their ranks (collective).
void load_homes(const StepShape& shape, StepBuffers& buffers, const offload::Store& store, int slot, Runtime& runtime,
                const Progress& progress);

// Writes every home of a trainable tile of this rank's shard into `slot` and sets its hashes in `hashes` ([tile][part]).
void store_homes(const StepShape& shape, StepBuffers& buffers, const offload::Store& store, int slot, Runtime& runtime,
                 std::vector<uint64_t>& hashes);

}  // namespace sluice::engine
