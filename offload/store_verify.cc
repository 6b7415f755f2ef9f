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

// "block 3: model.layers.2.mlp.up_proj.weight, ..."
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

}  // namespace

void fail_damaged(const Layout& layout, const Tile& tile, Part part, const io::File& file,
                  const StoreGeometry::Place& place) {
  base::fail(base::ErrorKind::disk,
             "{}: the {} extent at offset {} ({}) is damaged ({}): its bytes do not match the table. This "
             "generation cannot be used; restore the file from a copy",
             file.path().string(), part == Part::weights ? "weights" : "state", place.offset,
             base::format_bytes(place.bytes), tile_text(layout, tile));
}

void verify_extents(const VerifyRequest& r) {
  const base::Arena buffer(kBufferBytes, "verification of the store");
  const std::vector<Tile>& tiles = r.layout.tiles();
  uint64_t total = 0, done = 0;
  // Calls use(tile, part, place, files) for each extent of these files.
  const auto each = [&](const auto& use) {
    for (const Part part : {Part::weights, Part::state})
      for (uint32_t i = 0; i < tiles.size(); ++i) {
        if (part == Part::state && !tiles[i].trainable) continue;
        const StoreGeometry::Place place = r.geometry.place(i, part);
        for (const DataFiles* files : r.data)
          if (files->rank == place.rank && files->drive == place.drive) use(tiles[i], part, place, *files);
      }
  };
  each([&](const Tile&, Part, const StoreGeometry::Place& place, const DataFiles&) { total += place.bytes; });
  each([&](const Tile& tile, Part part, const StoreGeometry::Place& place, const DataFiles& files) {
    const io::File& file = place.base ? files.base : files.slots[r.slot];
    const uint64_t want = (place.base ? files.base_table : files.table)[place.entry];
    if (hash_on_disk(r, part, tile, file, place.offset, buffer.all()) != want)
      fail_damaged(r.layout, tile, part, file, place);
    done += place.bytes;
    if (r.progress) r.progress(done, total);
  });
}

}  // namespace sluice::offload
