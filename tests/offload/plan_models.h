// Model descriptions for plan tests: blocks by their number of tiles.
#pragma once
#include <cstdint>
#include <string>

#include "offload/layout.h"

namespace sluice::offload {

// One tensor of `elements` for the embedding and each layer; head: elements, 0: tied (the head is then a norm
// alone).
inline ModelDesc model_of(uint64_t embedding, uint64_t layer, uint64_t head, int layers) {
  const auto tensor = [](std::string name, uint64_t n) {
    return TensorDesc{std::move(name), {static_cast<int64_t>(n)}};
  };
  ModelDesc m;
  m.tied = head == 0;
  m.blocks.push_back({BlockKind::embedding, {tensor("embed", embedding)}});
  for (int l = 0; l < layers; ++l)
    m.blocks.push_back({BlockKind::layer, {tensor("layer" + std::to_string(l), layer)}});
  m.blocks.push_back({BlockKind::head, {tensor(m.tied ? "norm" : "lm_head", m.tied ? 64 : head)}});
  return m;
}

inline constexpr uint64_t kSmallTile = kLeafElements;

// Blocks of so many small tiles.
inline Layout small_layout(int embedding, int layer, int head, int layers) {
  return Layout(model_of(embedding * kSmallTile, layer * kSmallTile, head * kSmallTile, layers), Schema::bf16,
                kSmallTile);
}

}  // namespace sluice::offload
