#include "engine/memory_load.h"

#include <deque>
#include <future>

#include "base/arena.h"

namespace sluice::engine {
namespace {

// Requests in flight, bounded so that errors surface early; the queue itself caps the bytes.
class Transfers {
 public:
  explicit Transfers(io::DiskQueue& queue) : queue_(queue) {}
  void add(io::IoOp op, const offload::Extent& extent, std::byte* data) {
    if (pending_.size() == 16) wait_one();
    pending_.push_back(io::submit(queue_, {.op = op, .file = extent.file, .data = data, .bytes = extent.bytes, .offset = extent.offset}));
  }
  void wait() {
    while (!pending_.empty()) wait_one();
  }
  ~Transfers() { queue_.drain(); }

 private:
  void wait_one() {
    std::future<void> first = std::move(pending_.front());
    pending_.pop_front();
    first.get();
  }
  io::DiskQueue& queue_;
  std::deque<std::future<void>> pending_;
};

}  // namespace

void load_homes(const StepShape& shape, StepBuffers& buffers, const offload::Store& store, int slot, Runtime& runtime,
                const Progress& progress) {
  const auto& tiles = shape.layout().tiles();
  uint64_t largest = 0;
  for (const auto& tile : tiles) largest = std::max(largest, shape.layout().weights_extent_bytes(tile));
  const base::Arena staging(shape.resident() ? largest : 0, "loading");
  Transfers transfers(*runtime.queue);
  for (uint32_t i = 0; i < tiles.size(); ++i) {
    std::byte* weights = buffers.weights_home(i);
    std::byte* state = buffers.state_home(i);
    if (state != nullptr) transfers.add(io::IoOp::read, store.extent(slot, i, offload::Part::state), state);
    if (!shape.resident()) {
      if (weights != nullptr) transfers.add(io::IoOp::read, store.extent(slot, i, offload::Part::weights), weights);
    } else {
      const offload::Extent extent = store.extent(slot, i, offload::Part::weights);
      transfers.add(io::IoOp::read, extent, staging.data());
      transfers.wait();
      const at::Tensor resident = buffers.resident(tiles[i].block);
      std::byte* device = static_cast<std::byte*>(resident.data_ptr()) + buffers.offset_in_block(tiles[i]);
      runtime.h2d->copy_in(device, staging.data(), extent.bytes);
      runtime.h2d->synchronize();
      StepBuffers::refilled(resident);
      if (weights != nullptr && weights != device) std::copy_n(staging.data(), extent.bytes, weights);
    }
    if (progress) progress(i + 1, tiles.size());
  }
  transfers.wait();
}

void store_homes(const StepShape& shape, StepBuffers& buffers, const offload::Store& store, int slot, Runtime& runtime,
                 std::vector<uint64_t>& hashes) {
  const offload::Layout& layout = shape.layout();
  const auto& tiles = layout.tiles();
  Transfers transfers(*runtime.queue);
  const auto put = [&](uint32_t tile, offload::Part part, std::byte* home) {
    if (home == nullptr) return;
    const offload::Extent extent = store.extent(slot, tile, part);
    transfers.add(io::IoOp::write, extent, home);
    hashes[2 * tile + (part == offload::Part::state ? 1 : 0)] =
        offload::hash_extent(layout.schema(), part, tiles[tile], {home, extent.bytes});
  };
  for (uint32_t i = 0; i < tiles.size(); ++i) {
    if (!tiles[i].trainable) continue;
    put(i, offload::Part::weights, buffers.weights_home(i));
    put(i, offload::Part::state, buffers.state_home(i));
  }
  transfers.wait();
}

}  // namespace sluice::engine
