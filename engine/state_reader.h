// Reads tensors out of a store, range by range: the fp32 master and the moments.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "base/arena.h"
#include "offload/layout.h"
#include "offload/store.h"

namespace sluice::engine {

// Holds at most one tile of weights and one of state. Not thread-safe. Ranges in ascending order read each tile once.
class StateReader {
 public:
  StateReader(const offload::Layout& layout, const offload::Store& store, int slot);

  // Elements [first, first + count) of a tensor. A frozen tensor's master is its weight; it has no moments. v is left alone where the schema has none.
  void master(uint32_t block, const offload::TensorPlace& tensor, uint64_t first, uint64_t count, float* out);
  void moments(uint32_t block, const offload::TensorPlace& tensor, uint64_t first, uint64_t count, float* m, float* v);

 private:
  struct Part {
    base::Arena buffer;
    int64_t tile = -1;  // what it holds
  };
  // Calls use(tile, first element in the tile, count, elements before it in the range).
  template <class Use>
  void each_tile(uint32_t block, const offload::TensorPlace& tensor, uint64_t first, uint64_t count, const Use& use);
  std::byte* load(Part& part, offload::Part which, uint32_t tile);

  const offload::Layout& layout_;
  const offload::Store& store_;
  const int slot_;
  Part weights_, state_;
};

// Identity of the trained bits, whatever tier, tile or slot holds them. weights: XXH3 over (name, shape, fp32 master) of each tensor
// in model order. state: XXH3 over the XXH3 of all m and the XXH3 of all v, trainable tensors in model order.
struct StateDigest {
  uint64_t weights = 0, state = 0;
};
StateDigest digest_state(const offload::Layout& layout, const offload::Store& store, int slot);

}  // namespace sluice::engine
