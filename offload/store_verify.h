// Reads the data of slot files and base files and checks it against their tables. Bounded memory.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "offload/store_lock.h"

namespace sluice::offload {

struct VerifyRequest {
  const Layout& layout;
  const StoreGeometry& geometry;
  std::vector<const DataFiles*> data;  // what is checked: the extents of these files
  uint32_t slot;
  std::function<void(uint64_t done, uint64_t total)> progress;  // bytes; may be empty
};

// Error(disk) naming the first bad extent: file, offset, block, tensors.
void verify_extents(const VerifyRequest& request);

[[noreturn]] void fail_damaged(const Layout& layout, const Tile& tile, Part part, const io::File& file,
                               const StoreGeometry::Place& place);

}  // namespace sluice::offload
