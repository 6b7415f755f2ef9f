#include "offload/store_geometry.h"

#include "base/error.h"
#include "base/units.h"

namespace sluice::offload {
namespace {

constexpr uint64_t kPage = 4096;

// Table and data follow the header; the data has no extent yet.
StoreGeometry::FileShape shape_of(uint64_t extents) {
  StoreGeometry::FileShape shape;
  shape.extents = extents;
  shape.data_offset = base::round_up(kTableAt + base::round_up(extents * sizeof(uint64_t), kPage), kDataAlign);
  shape.file_bytes = shape.data_offset;
  return shape;
}

}  // namespace

// a / share_a < b / share_b, without division.
uint32_t StoreGeometry::next_drive(std::vector<uint64_t>& dealt, uint64_t bytes) const {
  uint32_t best = 0;
  for (uint32_t d = 1; d < drives(); ++d)
    if (dealt[d] * shares_[best] < dealt[best] * shares_[d]) best = d;
  dealt[best] += bytes;
  return best;
}

StoreGeometry::StoreGeometry(const Layout& layout, std::vector<uint32_t> shares) : shares_(std::move(shares)) {
  SLUICE_CHECK(!shares_.empty(), "a store on no drive");
  for (const uint32_t share : shares_) SLUICE_CHECK(share > 0 && share <= 1000, "share of a drive: 1 to 1000");
  const std::vector<Tile>& tiles = layout.tiles();
  weights_.resize(tiles.size());
  state_.resize(tiles.size());
  // Drives first: the number of extents of a file says where its data begins.
  std::vector<std::vector<uint64_t>> dealt(layout.world(), std::vector<uint64_t>(drives()));
  std::vector<uint64_t> slot_extents(layout.world() * drives()), base_extents(slot_extents.size());
  const auto deal = [&](Place& place, Part part, const Tile& tile) {
    place.base = !tile.trainable;
    place.rank = tile.shard;
    place.bytes = extent_bytes(layout.schema(), part, tile);
    place.drive = next_drive(dealt[tile.shard], place.bytes);
    auto& extents = place.base ? base_extents : slot_extents;
    place.entry = static_cast<uint32_t>(extents[place.rank * drives() + place.drive]++);
  };
  for (size_t i = 0; i < tiles.size(); ++i) deal(weights_[i], Part::weights, tiles[i]);
  for (size_t i = 0; i < tiles.size(); ++i)
    if (tiles[i].trainable) deal(state_[i], Part::state, tiles[i]);

  for (const uint64_t extents : slot_extents) slot_.push_back(shape_of(extents));
  for (const uint64_t extents : base_extents) base_.push_back(shape_of(extents));
  const auto put = [&](Place& place) {
    FileShape& shape = (place.base ? base_ : slot_)[place.rank * drives() + place.drive];
    place.offset = shape.file_bytes;
    shape.file_bytes += place.bytes;
  };
  for (Place& place : weights_) put(place);
  for (size_t i = 0; i < tiles.size(); ++i)
    if (tiles[i].trainable) put(state_[i]);
}

StoreGeometry::Place StoreGeometry::place(uint32_t tile, Part part) const {
  SLUICE_CHECK(tile < weights_.size(), "no such tile");
  if (part == Part::weights) return weights_[tile];
  SLUICE_CHECK(!weights_[tile].base, "frozen tiles have no state");
  return state_[tile];
}

uint64_t StoreGeometry::slot_bytes(uint32_t rank) const {
  uint64_t bytes = 0;
  for (uint32_t d = 0; d < drives(); ++d) bytes += slot(rank, d).file_bytes;
  return bytes;
}

uint64_t StoreGeometry::base_bytes(uint32_t rank) const {
  uint64_t bytes = 0;
  for (uint32_t d = 0; d < drives(); ++d) bytes += base(rank, d).extents == 0 ? 0 : base(rank, d).file_bytes;
  return bytes;
}

}  // namespace sluice::offload
