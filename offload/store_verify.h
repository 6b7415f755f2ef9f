// Reads the data of a slot file or of the base file and checks it against the table. Bounded memory.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "offload/store_slot_file.h"

namespace sluice::offload {

struct VerifyRequest {
  const Layout& layout;
  const StoreGeometry& geometry;
  const io::File* slot;  // null: not this one
  std::span<const uint64_t> table;
  const io::File* base;  // null: not this one
  std::span<const uint64_t> base_table;
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes; may be empty
};

// Error(disk) naming the first bad extent: file, offset, block, tensors.
void verify_extents(const VerifyRequest& request);

// "block 3: model.layers.2.mlp.up_proj.weight, ..." for messages.
std::string tile_text(const Layout& layout, const Tile& tile);

}  // namespace sluice::offload
