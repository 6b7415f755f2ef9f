#include "offload/store_verify.h"

#include <algorithm>
#include <vector>

#include "base/arena.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"

namespace sluice::offload {
namespace {

// A read is a whole number of leaves of the widest field and stays inside one field.
constexpr uint64_t kLeavesPerRead = 16;
constexpr uint64_t kBufferBytes = kLeavesPerRead * kLeafElements * 4;

uint64_t hash_on_disk(const VerifyRequest& r, Part part, const Tile& tile, const io::File& file,
                      uint64_t offset, std::span<std::byte> buffer) {
  std::vector<uint64_t> leaves;
  for (const ExtentField& field : extent_fields(r.layout.schema(), part)) {
    for (uint64_t first = 0; first < tile.count; first += kLeavesPerRead * kLeafElements) {
      const uint64_t count = std::min(kLeavesPerRead * kLeafElements, tile.count - first);
      const uint64_t stored = std::min(kLeavesPerRead * kLeafElements, tile.padded - first);
      const std::span<std::byte> bytes = buffer.first(stored * field.bytes);
      file.read_at(offset + first * field.bytes, bytes);
      for (uint64_t done = 0; done < count; done += kLeafElements)
        leaves.push_back(base::xxh3(
            bytes.subspan(done * field.bytes, std::min(kLeafElements, count - done) * field.bytes)));
    }
    offset += tile.padded * field.bytes;
  }
  return extent_hash(leaves);
}

}  // namespace

std::string tile_text(const Layout& layout, const Tile& tile) {
  std::string names;
  size_t more = 0;
  for (const TensorPlace& t : layout.blocks()[tile.block].tensors) {
    if (t.trainable != tile.trainable || t.offset + t.count <= tile.first ||
        t.offset >= tile.first + tile.count)
      continue;
    if (names.size() < 120)
      names += (names.empty() ? "" : ", ") + t.name;
    else
      ++more;
  }
  return fmt::format("block {}, tile {}: {}{}", tile.block, tile.index, names,
                     more == 0 ? "" : fmt::format(" and {} more", more));
}

void verify_extents(const VerifyRequest& r) {
  const base::Arena buffer(kBufferBytes, "verification of the store");
  uint64_t total = 0, done = 0;
  if (r.slot != nullptr) total += r.geometry.slot().file_bytes - r.geometry.slot().data_offset;
  if (r.base != nullptr) total += r.geometry.base().file_bytes - r.geometry.base().data_offset;
  const auto check = [&](uint32_t index, Part part) {
    const Tile& tile = r.layout.tiles()[index];
    const StoreGeometry::Place place = r.geometry.place(index, part);
    const io::File* file = place.base ? r.base : r.slot;
    if (file == nullptr) return;
    const uint64_t want = (place.base ? r.base_table : r.table)[place.entry];
    if (hash_on_disk(r, part, tile, *file, place.offset, buffer.all()) != want)
      base::fail(
          base::ErrorKind::disk,
          "{}: the {} extent at offset {} ({}) is damaged ({}): its bytes do not match the table. This "
          "generation cannot be used; restore the file from a copy",
          file->path().string(), part == Part::weights ? "weights" : "state", place.offset,
          base::format_bytes(place.bytes), tile_text(r.layout, tile));
    done += place.bytes;
    if (r.progress) r.progress(done, total);
  };
  const uint32_t tiles = static_cast<uint32_t>(r.layout.tiles().size());
  for (uint32_t i = 0; i < tiles; ++i) check(i, Part::weights);
  for (uint32_t i = 0; i < tiles; ++i)
    if (r.layout.tiles()[i].trainable) check(i, Part::state);
}

}  // namespace sluice::offload
