// Where the extents of a layout lie: which rank's file on which drive, and where in it.
#pragma once
#include <cstdint>
#include <vector>

#include "offload/layout.h"
#include "offload/store_extent.h"

namespace sluice::offload {

inline constexpr uint64_t kTableAt = 4096;
inline constexpr uint64_t kDataAlign = 2 << 20;

// A rank has one slot file on each drive. It holds all weights extents, then all state extents of the rank's trainable tiles on that
// drive; a base file the weights extents of the frozen ones; each in (block, tile) order, without gaps. The extents of a rank are dealt
// in that order: each goes to the drive that has the fewest bytes so far for its share.
class StoreGeometry {
 public:
  struct FileShape {
    uint64_t extents = 0, data_offset = 0, file_bytes = 0;
  };
  struct Place {
    bool base;             // else in a slot file
    uint32_t rank, drive;  // of the file
    uint32_t entry;        // of that file's table
    uint64_t offset, bytes;
  };
  // shares: one a drive, how much of the data it gets in proportion; positive.
  explicit StoreGeometry(const Layout& layout, std::vector<uint32_t> shares = {1});

  uint32_t drives() const { return static_cast<uint32_t>(shares_.size()); }
  const FileShape& slot(uint32_t rank, uint32_t drive) const { return slot_[rank * drives() + drive]; }
  const FileShape& base(uint32_t rank, uint32_t drive) const { return base_[rank * drives() + drive]; }  // no extents: no such file
  uint64_t slot_bytes(uint32_t rank) const;  // of the files of one slot, on all drives
  uint64_t base_bytes(uint32_t rank) const;  // of the base files
  Place place(uint32_t tile, Part part) const;  // frozen tiles have weights only

 private:
  uint32_t next_drive(std::vector<uint64_t>& dealt, uint64_t bytes) const;

  std::vector<uint32_t> shares_;
  std::vector<Place> weights_, state_;  // by tile
  std::vector<FileShape> slot_, base_;  // by (rank, drive)
};

}  // namespace sluice::offload
