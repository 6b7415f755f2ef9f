#include "offload/store_extent.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "base/error.h"
#include "base/hash.h"

namespace sluice::offload {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the store's bytes are little endian; arrays are written as they lie");

constexpr std::array<ExtentField, 1> kBf16Weights{{{"hi", 2}}};
constexpr std::array<ExtentField, 3> kBf16State{{{"lo", 2}, {"m", 4}, {"v", 4}}};
constexpr std::array<ExtentField, 1> kFp16Weights{{{"w", 2}}};
constexpr std::array<ExtentField, 3> kFp16State{{{"p", 4}, {"m", 4}, {"v", 4}}};
constexpr std::array<ExtentField, 1> kFp32Weights{{{"p", 4}}};
constexpr std::array<ExtentField, 2> kFp32State{{{"m", 4}, {"v", 4}}};

}  // namespace

std::span<const ExtentField> extent_fields(Schema schema, Part part) {
  const auto choose = [&](std::span<const ExtentField> weights, std::span<const ExtentField> state) {
    return part == Part::weights ? weights : state.first(state.size() - (has_variance(schema) ? 0 : 1));  // v is the last field
  };
  switch (number_type(schema)) {
    case NumberType::bf16: return choose(kBf16Weights, kBf16State);
    case NumberType::fp16: return choose(kFp16Weights, kFp16State);
    case NumberType::fp32: return choose(kFp32Weights, kFp32State);
  }
  base::fail(base::ErrorKind::bug, "unknown schema {}", static_cast<int>(schema));
}

uint64_t extent_bytes(Schema schema, Part part, const Tile& tile) {
  uint64_t bytes = 0;
  for (const ExtentField& field : extent_fields(schema, part)) bytes += field.bytes;
  return bytes * tile.padded;
}

uint64_t leaf_count(const Tile& tile, uint64_t index) {
  return std::min(kLeafElements, tile.count - index * kLeafElements);
}

uint64_t extent_hash(std::span<const uint64_t> leaf_hashes) {
  return base::xxh3(leaf_hashes.data(), leaf_hashes.size_bytes());
}

uint64_t hash_extent(Schema schema, Part part, const Tile& tile, std::span<const std::byte> extent) {
  SLUICE_CHECK(extent.size() == extent_bytes(schema, part, tile), "extent of the wrong size");
  std::vector<uint64_t> leaves;
  uint64_t field_begin = 0;
  for (const ExtentField& field : extent_fields(schema, part)) {
    for (uint64_t done = 0; done < tile.count; done += kLeafElements) {
      const uint64_t count = leaf_count(tile, done / kLeafElements);
      leaves.push_back(base::xxh3(extent.subspan(field_begin + done * field.bytes, count * field.bytes)));
    }
    field_begin += tile.padded * field.bytes;
  }
  return extent_hash(leaves);
}

uint64_t ZeroHashes::leaf(uint64_t bytes) {
  const auto found = by_bytes_.find(bytes);
  if (found != by_bytes_.end()) return found->second;
  const std::vector<std::byte> zeros(bytes);
  return by_bytes_[bytes] = base::xxh3(zeros);
}

}  // namespace sluice::offload
