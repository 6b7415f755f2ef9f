#include "offload/store_ranges.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "offload/store_verify.h"

namespace sluice::offload {
namespace {

using base::fail;

uint64_t largest(const Layout& layout, Part part) {
  uint64_t bytes = 0;
  for (const Tile& tile : layout.tiles())
    if (part == Part::weights || tile.trainable) bytes = std::max(bytes, extent_bytes(layout.schema(), part, tile));
  return bytes;
}

}  // namespace

StoredRanges::StoredRanges(const OpenedStore& opened, const Layout& layout)
    : opened_(opened),
      layout_(layout),
      geometry_(layout, opened.files.stored.shares),
      weights_{base::Arena(largest(layout, Part::weights), "reading the old weights")},
      state_{base::Arena(largest(layout, Part::state), "reading the old optimizer state")} {}

const StoredRanges::Source& StoredRanges::source(const StoreGeometry::Place& place) {
  auto& sources = place.base ? bases_ : slots_;
  const auto [it, is_new] = sources.try_emplace({place.rank, place.drive});
  Source& source = it->second;
  if (!is_new) return source;
  SlotHeader expected;
  expected.uuid = opened_.files.stored.uuid;
  expected.rank = place.rank;
  expected.drive = place.drive;
  expected.slot = place.base ? kBaseSlot : opened_.record.slot;
  const std::filesystem::path path = opened_.files.folders[place.drive] / slot_file_name(place.rank, place.drive, expected.slot);
  if (!std::filesystem::exists(path))
    fail(base::ErrorKind::disk,
         "{} is missing here. To change the number of ranks, every rank must see the files of all {} ranks that wrote the store: copy "
         "them here, or go on with {} ranks",
         path.string(), layout_.world(), layout_.world());
  source.file = io::File::open(path, io::OpenMode::read);
  const StoreGeometry::FileShape& shape =
      place.base ? geometry_.base(place.rank, place.drive) : geometry_.slot(place.rank, place.drive);
  const SlotHeader header = read_header_and_table(source.file, shape, expected, &source.table);
  if (!place.base && header.table_hash != opened_.table_hashes[place.rank * geometry_.drives() + place.drive])
    fail(base::ErrorKind::disk, "{}: its table is not the one that was published", path.string());
  return source;
}

std::span<const std::byte> StoredRanges::load(Part part, uint32_t index) {
  Loaded& loaded = part == Part::weights ? weights_ : state_;
  const StoreGeometry::Place place = geometry_.place(index, part);
  const auto bytes = loaded.buffer.span(0, place.bytes);
  if (loaded.tile == index) return bytes;
  loaded.tile = -1;
  const Source& from = source(place);
  from.file.read_at(place.offset, bytes);
  const Tile& tile = layout_.tiles()[index];
  if (hash_extent(layout_.schema(), part, tile, bytes) != from.table[place.entry])
    fail_damaged(layout_, tile, part, from.file, place);
  loaded.tile = index;
  return bytes;
}

void StoredRanges::read(Part part, const Tile& wanted, std::span<std::byte> out) {
  SLUICE_CHECK(out.size() == extent_bytes(layout_.schema(), part, wanted), "extent of the wrong size");
  std::fill(out.begin(), out.end(), std::byte{0});
  const BlockPlace& block = layout_.blocks()[wanted.block];
  const std::vector<uint32_t>& tiles = wanted.trainable ? block.trainable_tiles : block.frozen_tiles;
  const uint64_t end = wanted.first + wanted.count;
  auto next = std::upper_bound(tiles.begin(), tiles.end(), wanted.first,
                               [&](uint64_t element, uint32_t t) { return element < layout_.tiles()[t].first; });
  SLUICE_CHECK(next != tiles.begin(), "a tile outside of its segment");
  --next;
  for (uint64_t at = wanted.first; at < end; ++next) {
    SLUICE_CHECK(next != tiles.end(), "a tile outside of its segment");
    const Tile& tile = layout_.tiles()[*next];
    const std::span<const std::byte> extent = load(part, *next);
    const uint64_t count = std::min(end, tile.first + tile.count) - at;
    uint64_t from = 0, to = 0;  // of the field
    for (const ExtentField& field : extent_fields(layout_.schema(), part)) {
      std::memcpy(out.data() + to + (at - wanted.first) * field.bytes, extent.data() + from + (at - tile.first) * field.bytes,
                  count * field.bytes);
      from += tile.padded * field.bytes;
      to += wanted.padded * field.bytes;
    }
    at += count;
  }
}

}  // namespace sluice::offload
