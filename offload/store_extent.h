// What an extent holds, as data, and its hash.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "offload/layout.h"

namespace sluice::offload {

enum class Part : uint8_t { weights, state };

struct ExtentField {
  const char* name;
  uint32_t bytes;  // of one element
};

// The fields of an extent in stored order; each is Tile::padded elements long.
std::span<const ExtentField> extent_fields(Schema schema, Part part);
uint64_t extent_bytes(Schema schema, Part part, const Tile& tile);

// Hash of an extent from its fields' leaf hashes, in (field, leaf) order. A leaf hash is the XXH3-64 of
// kLeafElements elements of one field (the last leaf: what Tile::count leaves).
uint64_t extent_hash(std::span<const uint64_t> leaf_hashes);

// The same from the bytes of a whole extent.
uint64_t hash_extent(Schema schema, Part part, const Tile& tile, std::span<const std::byte> extent);

// Leaf hashes of fields that were never written. Not thread-safe.
class ZeroHashes {
 public:
  uint64_t leaf(uint64_t bytes);

 private:
  std::map<uint64_t, uint64_t> by_bytes_;
};

// Elements of leaf `index` of a tile: kLeafElements, fewer in the last one.
uint64_t leaf_count(const Tile& tile, uint64_t index);

}  // namespace sluice::offload
