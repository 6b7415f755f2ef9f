#include "offload/layout.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/hash.h"

namespace sluice::offload {
namespace {

constexpr uint64_t round_up(uint64_t n, uint64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

void check_model(const ModelDesc& model) {
  const auto& blocks = model.blocks;
  SLUICE_CHECK(blocks.size() >= 2 && blocks.front().kind == BlockKind::embedding &&
                   blocks.back().kind == BlockKind::head,
               "a model is an embedding, layers, a head");
  std::set<std::string_view> names;
  for (size_t b = 0; b < blocks.size(); ++b) {
    SLUICE_CHECK(b == 0 || b + 1 == blocks.size() || blocks[b].kind == BlockKind::layer,
                 "only layers between the ends");
    SLUICE_CHECK(!blocks[b].tensors.empty(), "block without tensors");
    for (const TensorDesc& t : blocks[b].tensors)
      SLUICE_CHECK(names.insert(t.name).second, "tensor named twice: " + t.name);
  }
}

// Places the tensors of one segment; returns its length.
uint64_t place(const BlockDesc& block, bool trainable, std::vector<TensorPlace>& places) {
  uint64_t offset = 0;
  for (size_t i = 0; i < block.tensors.size(); ++i) {
    const TensorDesc& t = block.tensors[i];
    if (t.trainable != trainable) continue;
    places[i] = {t.name, t.shape, t.trainable, t.group, offset, t.count()};
    offset += round_up(places[i].count, kTensorAlign);
  }
  return offset;
}

}  // namespace

uint64_t TensorDesc::count() const {
  uint64_t n = 1;
  for (int64_t d : shape) {
    if (d <= 0)
      base::fail(base::ErrorKind::model,
                 "tensor {}: dimension {} in its shape; every dimension must be positive", name, d);
    if (n > (uint64_t{1} << 56) / static_cast<uint64_t>(d))
      base::fail(base::ErrorKind::model, "tensor {}: more elements than 2^56", name);
    n *= static_cast<uint64_t>(d);
  }
  return n;
}

uint64_t BlockPlace::padded_trainable() const {
  return round_up(trainable, kExtentAlign);
}
BlockPlace::Range BlockPlace::shard(bool of_trainable, uint32_t rank) const {
  const uint64_t length = of_trainable ? trainable : frozen;
  const uint64_t each = of_trainable ? trainable_shard : frozen_shard;
  const uint64_t first = std::min(length, rank * each);
  return {first, std::min(each, length - first)};
}
uint64_t BlockPlace::device_elements() const {
  return padded_trainable() + round_up(frozen, kExtentAlign);
}

Layout::Layout(const ModelDesc& model, Schema schema, uint64_t tile, uint32_t world)
    : schema_(schema), tile_(tile), world_(world), tied_(model.tied) {
  SLUICE_CHECK(world > 0, "a layout for no rank");
  if (tile == 0 || tile % kLeafElements != 0)
    base::fail(base::ErrorKind::config, "storage.tile is {} elements; it must be a positive multiple of {}",
               tile, kLeafElements);
  check_model(model);
  for (uint32_t b = 0; b < model.blocks.size(); ++b) {
    const BlockDesc& desc = model.blocks[b];
    BlockPlace& block = blocks_.emplace_back();
    block.kind = desc.kind;
    block.tensors.resize(desc.tensors.size());
    block.trainable = place(desc, true, block.tensors);
    block.frozen = place(desc, false, block.tensors);
    for (bool trainable : {true, false}) {
      const uint64_t length = trainable ? block.trainable : block.frozen;
      auto& list = trainable ? block.trainable_tiles : block.frozen_tiles;
      const uint64_t shard = round_up((length + world - 1) / world, kExtentAlign);
      (trainable ? block.trainable_shard : block.frozen_shard) = shard;
      for (uint64_t first = 0, count; first < length; first += count) {
        const uint64_t owner = first / shard;
        count = std::min({tile, length - first, (owner + 1) * shard - first});
        tiles_.push_back({b, static_cast<uint32_t>(list.size()), static_cast<uint32_t>(owner), trainable,
                          first, count, round_up(count, kExtentAlign)});
        list.push_back(static_cast<uint32_t>(tiles_.size() - 1));
      }
    }
  }
}

const TensorPlace& Layout::tensor(std::string_view name) const {
  for (const BlockPlace& block : blocks_)
    for (const TensorPlace& t : block.tensors)
      if (t.name == name) return t;
  base::fail(base::ErrorKind::bug, "layout has no tensor {}", name);
}

uint64_t Layout::trainable_elements() const {
  uint64_t n = 0;
  for (const BlockPlace& block : blocks_) n += block.trainable;
  return n;
}

uint64_t Layout::parameters() const {
  uint64_t n = 0;
  for (const BlockPlace& block : blocks_)
    for (const TensorPlace& t : block.tensors) n += t.count;
  return n;
}

std::optional<uint32_t> Layout::lowest_trainable_block() const {
  for (uint32_t b = 0; b < blocks_.size(); ++b)
    if (blocks_[b].trainable > 0) return b;
  return std::nullopt;
}

Layout Layout::resized(uint64_t tile, uint32_t world) const {
  ModelDesc model;
  model.tied = tied_;
  for (const BlockPlace& block : blocks_) {
    BlockDesc& desc = model.blocks.emplace_back(BlockDesc{block.kind, {}});
    for (const TensorPlace& t : block.tensors) desc.tensors.push_back({t.name, t.shape, t.trainable, t.group});
  }
  return {model, schema_, tile, world};
}

Layout Layout::joined() const {
  Layout one = *this;
  one.world_ = 1;
  for (BlockPlace& block : one.blocks_) {
    block.trainable_shard = round_up(block.trainable, kExtentAlign);
    block.frozen_shard = round_up(block.frozen, kExtentAlign);
  }
  for (Tile& tile : one.tiles_) tile.shard = 0;
  return one;
}

uint64_t Layout::digest() const {
  base::Xxh3 hash;
  const auto number = [&](uint64_t n) {  // little endian, whatever the machine
    unsigned char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(n >> (8 * i));
    hash.update(bytes, sizeof bytes);
  };
  number(static_cast<uint64_t>(schema_));
  number(tile_);
  if (world_ > 1) number(world_);
  number(tied_);
  number(blocks_.size());
  for (const BlockPlace& block : blocks_) {
    number(static_cast<uint64_t>(block.kind));
    number(block.tensors.size());
    for (const TensorPlace& t : block.tensors) {
      number(t.name.size());
      hash.update(t.name.data(), t.name.size());
      number(t.shape.size());
      for (int64_t d : t.shape) number(static_cast<uint64_t>(d));
      number(t.trainable);
    }
  }
  return hash.digest();
}

}  // namespace sluice::offload
