// Reads logical ranges out of the published slot of a store, whatever its world, tile and drives.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "base/arena.h"
#include "io/file.h"
#include "offload/store_lock.h"

namespace sluice::offload {

// Every table is checked against the root, every extent against its table, before a byte of it is given. Holds one extent of weights and
// one of state; ranges in ascending order read each extent once. Reads the files of all ranks, without locks of its own: the caller's
// ranks hold them. Not thread-safe.
class StoredRanges {
 public:
  // layout: the one it was written with. Both outlive it.
  StoredRanges(const OpenedStore& opened, const Layout& layout);

  // The extent of `wanted`, a tile of the same model cut in any way; its padding is zero. Error(disk): damage, or a file that is not seen
  // from here.
  void read(Part part, const Tile& wanted, std::span<std::byte> out);

 private:
  struct Loaded {
    base::Arena buffer;
    int64_t tile = -1;  // what it holds
  };
  struct Source {
    io::File file;
    std::vector<uint64_t> table;
  };
  std::span<const std::byte> load(Part part, uint32_t tile);
  const Source& source(const StoreGeometry::Place& place);

  const OpenedStore& opened_;
  const Layout& layout_;
  const StoreGeometry geometry_;
  Loaded weights_, state_;
  std::map<std::pair<uint32_t, uint32_t>, Source> slots_, bases_;  // by (rank, drive)
};

}  // namespace sluice::offload
