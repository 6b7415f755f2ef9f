// Micro-batches from packed samples.
#pragma once
#include <cstdint>

#include "engine/packing.h"
#include "engine/step.h"

namespace sluice::engine {

// Rows first, first + 1, ... of the packing; rows at or beyond `end` are filled with untrained padding (evaluation's last batch).
HostMicroBatch assemble(const Packing& packing, uint64_t first, uint32_t rows, uint32_t sequence, uint64_t end);

// Fills the plane of document starts from the pieces.
void write_starts(HostMicroBatch& batch, uint32_t sequence);

}  // namespace sluice::engine
