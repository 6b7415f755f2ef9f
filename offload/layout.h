// Where every parameter lies: blocks, segments, tiles, leaves, extents. Pure arithmetic, no memory.
//
// The tensors of a block lie flat in declared order in two segments, trainable then frozen. Every tensor starts at a multiple
// of 128 elements; the gaps are stored and always zero. The "flat index" of a segment is the one index used by tiles, leaves,
// extents and gradients.
//
// Over `world` ranks a segment is cut into as many shards of equal length (a multiple of 2,048 elements; the last ones may be
// shorter or empty). The cut depends on segment and world alone, never on the ZeRO stage: tiles, leaves and norms are the same in
// every stage.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::offload {

inline constexpr uint64_t kTensorAlign = 128;   // elements
inline constexpr uint64_t kExtentAlign = 2048;  // elements; so that every field of an extent starts on 4 KiB
inline constexpr uint64_t kLeafElements = 65536;

// What a model is, to this layer. Order of blocks: embedding, layer 0..L-1, head.
enum class BlockKind : uint8_t { embedding, layer, head };
struct TensorDesc {
  std::string name;  // Hugging Face name
  std::vector<int64_t> shape;
  bool trainable = true;
  uint32_t group = 0;  // optimizer parameter group (decay, no decay)
  uint64_t count() const;
};
struct BlockDesc {
  BlockKind kind;
  std::vector<TensorDesc> tensors;
};
struct ModelDesc {
  std::vector<BlockDesc> blocks;
  bool tied = false;  // the head uses the embedding's matrix (first tensor of block 0)
};

// Element types of a weight and its state. bf16: hi2 | lo2 m4 v4.  fp32: p4 | m4 v4.  fp16: w2 | p4 m4 v4.  Lion's: without v.
enum class Schema : uint8_t { bf16, fp32, fp16, bf16_lion, fp32_lion, fp16_lion };  // the numbers are in layout hashes
enum class NumberType : uint8_t { bf16, fp32, fp16 };                               // of the weights that compute
constexpr bool has_variance(Schema s) { return s <= Schema::fp16; }
constexpr NumberType number_type(Schema s) { return static_cast<NumberType>(static_cast<uint8_t>(s) % 3); }
constexpr Schema schema_of(NumberType n, bool variance) { return static_cast<Schema>(static_cast<uint8_t>(n) + (variance ? 0 : 3)); }
constexpr const char* to_string(NumberType n) { return n == NumberType::bf16 ? "bf16" : n == NumberType::fp16 ? "fp16" : "fp32"; }
constexpr const char* to_string(Schema s) {
  constexpr const char* lion[] = {"bf16-lion", "fp32-lion", "fp16-lion"};
  return has_variance(s) ? to_string(number_type(s)) : lion[static_cast<uint8_t>(number_type(s))];
}
constexpr uint64_t weight_bytes(Schema s) { return number_type(s) == NumberType::fp32 ? 4 : 2; }
// Of the state's first field where it is a part of the master (lo, or p): it comes from the model, the moments begin as zeros.
constexpr uint64_t master_bytes(Schema s) { return number_type(s) == NumberType::bf16 ? 2 : number_type(s) == NumberType::fp16 ? 4 : 0; }
constexpr uint64_t state_bytes(Schema s) { return master_bytes(s) + (has_variance(s) ? 8 : 4); }
constexpr uint64_t parameter_bytes(Schema s) { return weight_bytes(s) + state_bytes(s); }

struct TensorPlace {
  std::string name;
  std::vector<int64_t> shape;
  bool trainable;
  uint32_t group;
  uint64_t offset;  // in the flat index of its segment
  uint64_t count;
};

// A run of a segment's flat index inside one shard: the unit of disk I/O, host staging and Adam.
struct Tile {
  uint32_t block;
  uint32_t index;   // in its block and segment, counted over all shards
  uint32_t shard;   // the rank that owns it
  bool trainable;
  uint64_t first;   // flat index of its first element
  uint64_t count;   // logical elements (multiple of kTensorAlign)
  uint64_t padded;  // count rounded up to kExtentAlign: what is stored
};

struct BlockPlace {
  BlockKind kind;
  std::vector<TensorPlace> tensors;          // declared order
  uint64_t trainable = 0, frozen = 0;        // logical elements of the two segments
  uint64_t trainable_shard = 0, frozen_shard = 0;  // elements from one shard's start to the next one's
  std::vector<uint32_t> trainable_tiles, frozen_tiles;  // indices into Layout::tiles(), of all shards in order
  uint64_t padded_trainable() const;         // elements; where the frozen segment starts in a device slot
  struct Range {
    uint64_t first = 0, count = 0;  // elements of the segment
  };
  Range shard(bool of_trainable, uint32_t rank) const;  // may be empty
  uint64_t device_elements() const;          // both segments, each padded to kExtentAlign; each tile lies at its flat offset
};

class Layout {
 public:
  // tile: elements, a multiple of kLeafElements. Error(config) otherwise.
  Layout(const ModelDesc& model, Schema schema, uint64_t tile, uint32_t world = 1);

  Schema schema() const { return schema_; }
  uint64_t tile_elements() const { return tile_; }
  uint32_t world() const { return world_; }
  bool tied() const { return tied_; }
  const std::vector<BlockPlace>& blocks() const { return blocks_; }
  const std::vector<Tile>& tiles() const { return tiles_; }  // block order; in a block trainable first; in a segment by shard
  const TensorPlace& tensor(std::string_view name) const;    // Error(bug) when absent
  uint64_t trainable_elements() const;                       // of the flat indices (gaps included), whole model
  uint64_t parameters() const;                               // sum of tensor counts
  uint64_t weights_extent_bytes(const Tile& tile) const { return tile.padded * weight_bytes(schema_); }
  uint64_t state_extent_bytes(const Tile& tile) const { return tile.padded * state_bytes(schema_); }
  uint64_t leaves(const Tile& tile) const { return (tile.count + kLeafElements - 1) / kLeafElements; }
  // The lowest block with a trainable parameter; none: nothing trains (Error(config) in the trainer).
  std::optional<uint32_t> lowest_trainable_block() const;
  Layout resized(uint64_t tile, uint32_t world) const;  // the same model and schema, cut otherwise
  Layout joined() const;                                // the same tiles, all of them of one rank: for a process that reads all shards
  uint64_t digest() const;  // of schema, tile, world, blocks, names, shapes, order, trainable flags (not groups: decay may change): the store's layout hash

 private:
  Schema schema_;
  uint64_t tile_;
  uint32_t world_;
  bool tied_;
  std::vector<BlockPlace> blocks_;
  std::vector<Tile> tiles_;
};

}  // namespace sluice::offload
