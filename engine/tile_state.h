// The arrays of a tile in its weights and state extents (docs/store_format.md, "extent").
#pragma once
#include <cstddef>

#include "cpu_adam/adam.h"
#include "offload/layout.h"

namespace sluice::engine {

// bf16: hi | lo m v. fp32: p | m v. fp16: half | p m v. Lion: without v. Either extent may be null; its fields are then null.
inline cpu_adam::TileState tile_state(offload::Schema schema, const offload::Tile& tile, std::byte* weights, std::byte* state) {
  cpu_adam::TileState s;
  switch (offload::number_type(schema)) {
    case offload::NumberType::bf16:
      s.hi = reinterpret_cast<uint16_t*>(weights);
      s.lo = reinterpret_cast<int16_t*>(state);
      break;
    case offload::NumberType::fp16:
      s.half = reinterpret_cast<uint16_t*>(weights);
      s.p = reinterpret_cast<float*>(state);
      break;
    case offload::NumberType::fp32: s.p = reinterpret_cast<float*>(weights); break;
  }
  if (state == nullptr) return s;
  s.m = reinterpret_cast<float*>(state + tile.padded * offload::master_bytes(schema));
  if (offload::has_variance(schema)) s.v = s.m + tile.padded;
  return s;
}

}  // namespace sluice::engine
