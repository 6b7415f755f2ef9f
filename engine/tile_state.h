// The arrays of a tile in its weights and state extents (docs/store_format.md, "extent").
#pragma once
#include <cstddef>

#include "cpu_adam/adam.h"
#include "offload/layout.h"

namespace sluice::engine {

// bf16: hi | lo m v. fp32: p | m v. Either extent may be null; its fields are then null.
inline cpu_adam::TileState tile_state(offload::Schema schema, const offload::Tile& tile, std::byte* weights, std::byte* state) {
  cpu_adam::TileState s;
  const bool split = schema == offload::Schema::bf16;
  if (split) {
    s.hi = reinterpret_cast<uint16_t*>(weights);
  } else {
    s.p = reinterpret_cast<float*>(weights);
  }
  if (state == nullptr) return s;
  std::byte* moments = state;
  if (split) {
    s.lo = reinterpret_cast<int16_t*>(state);
    moments += tile.padded * sizeof(int16_t);
  }
  s.m = reinterpret_cast<float*>(moments);
  s.v = s.m + tile.padded;
  return s;
}

}  // namespace sluice::engine
