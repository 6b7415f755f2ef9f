#include "engine/state_reader.h"

#include <algorithm>
#include <iterator>

#include "base/bf16.h"
#include "base/fp16.h"
#include "base/hash.h"
#include "engine/tile_state.h"

namespace sluice::engine {
namespace {

constexpr uint64_t kPiece = 1 << 16;  // elements

uint64_t largest(const offload::Layout& layout, offload::Part part) {
  uint64_t bytes = 0;
  for (const auto& tile : layout.tiles())
    bytes = std::max(bytes, part == offload::Part::weights ? layout.weights_extent_bytes(tile) : layout.state_extent_bytes(tile));
  return bytes;
}

}  // namespace

StateReader::StateReader(const offload::Layout& layout, const offload::Store& store, int slot)
    : layout_(layout),
      store_(store),
      slot_(slot),
      weights_{base::Arena(largest(layout, offload::Part::weights), "reading weights")},
      state_{base::Arena(largest(layout, offload::Part::state), "reading optimizer state")} {}

std::byte* StateReader::load(Part& part, offload::Part which, uint32_t tile) {
  if (part.tile != tile) {
    part.tile = -1;
    const offload::Extent extent = store_.extent(slot_, tile, which);
    extent.file->read_at(extent.offset, part.buffer.span(0, extent.bytes));
    part.tile = tile;
  }
  return part.buffer.data();
}

template <class Use>
void StateReader::each_tile(uint32_t block, const offload::TensorPlace& tensor, uint64_t first, uint64_t count, const Use& use) {
  const auto& place = layout_.blocks()[block];
  const auto& tiles = tensor.trainable ? place.trainable_tiles : place.frozen_tiles;
  const uint64_t begin = tensor.offset + first;
  for (uint64_t at = begin; at < begin + count;) {
    const uint32_t tile = *std::prev(std::upper_bound(
        tiles.begin(), tiles.end(), at, [&](uint64_t element, uint32_t t) { return element < layout_.tiles()[t].first; }));
    const uint64_t in_tile = at - layout_.tiles()[tile].first;
    const uint64_t n = std::min(begin + count - at, layout_.tiles()[tile].count - in_tile);
    use(tile, in_tile, n, at - begin);
    at += n;
  }
}

void StateReader::master(uint32_t block, const offload::TensorPlace& tensor, uint64_t first, uint64_t count, float* out) {
  each_tile(block, tensor, first, count, [&](uint32_t tile, uint64_t at, uint64_t n, uint64_t done) {
    std::byte* weights = load(weights_, offload::Part::weights, tile);
    const bool in_state = offload::master_bytes(layout_.schema()) > 0 && tensor.trainable;
    std::byte* state = in_state ? load(state_, offload::Part::state, tile) : nullptr;
    const cpu_adam::TileState s = tile_state(layout_.schema(), layout_.tiles()[tile], weights, state);
    for (uint64_t i = at; i < at + n; ++i, ++done)
      out[done] = s.p != nullptr      ? s.p[i]
                  : s.half != nullptr ? base::fp16_to_float(s.half[i])
                  : s.lo != nullptr   ? base::join(s.hi[i], s.lo[i])
                                      : base::bf16_to_float(s.hi[i]);
  });
}

void StateReader::moments(uint32_t block, const offload::TensorPlace& tensor, uint64_t first, uint64_t count, float* m, float* v) {
  each_tile(block, tensor, first, count, [&](uint32_t tile, uint64_t at, uint64_t n, uint64_t done) {
    std::byte* state = load(state_, offload::Part::state, tile);
    const cpu_adam::TileState s = tile_state(layout_.schema(), layout_.tiles()[tile], nullptr, state);
    std::copy_n(s.m + at, n, m + done);
    if (s.v != nullptr) std::copy_n(s.v + at, n, v + done);
  });
}

StateDigest digest_state(const offload::Layout& layout, const offload::Store& store, int slot) {
  StateReader reader(layout, store, slot);
  base::Xxh3 weights, m_hash, v_hash;
  std::vector<float> a(kPiece), b(kPiece);
  for (uint32_t block = 0; block < layout.blocks().size(); ++block) {
    for (const auto& tensor : layout.blocks()[block].tensors) {
      weights.update(tensor.name.data(), tensor.name.size());
      weights.update(tensor.shape.data(), tensor.shape.size() * sizeof(int64_t));
      for (uint64_t at = 0; at < tensor.count; at += kPiece) {
        const uint64_t n = std::min(kPiece, tensor.count - at);
        reader.master(block, tensor, at, n, a.data());
        weights.update(a.data(), n * sizeof(float));
        if (!tensor.trainable) continue;
        reader.moments(block, tensor, at, n, a.data(), b.data());
        m_hash.update(a.data(), n * sizeof(float));
        if (offload::has_variance(layout.schema())) v_hash.update(b.data(), n * sizeof(float));
      }
    }
  }
  const uint64_t moments[2] = {m_hash.digest(), v_hash.digest()};
  return {weights.digest(), base::xxh3(moments, sizeof moments)};
}

}  // namespace sluice::engine
