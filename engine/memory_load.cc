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

// Between extents on disk and the device, through registered host memory: the host may not be able to address device memory.
class Staging {
 public:
  Staging(Runtime& runtime, uint64_t bytes)
      : runtime_(runtime),
        arena_(bytes, "loading"),
        registered_(bytes == 0 ? nullptr : runtime.device->register_host(arena_.all())),
        transfers_(*runtime.queue) {}

  // The bytes stay in host() until the next call.
  void load(const offload::Extent& extent, std::byte* device) {
    transfers_.add(io::IoOp::read, extent, host());
    transfers_.wait();
    runtime_.h2d->copy_in(device, host(), extent.bytes);
    runtime_.h2d->synchronize();
  }
  void store(const std::byte* device, const offload::Extent& extent) {
    runtime_.d2h->copy_out(host(), device, extent.bytes);
    runtime_.d2h->synchronize();
    transfers_.add(io::IoOp::write, extent, host());
    transfers_.wait();
  }
  std::byte* host() const { return arena_.data(); }

 private:
  Runtime& runtime_;
  const base::Arena arena_;
  const std::unique_ptr<gpu::HostRegistration> registered_;
  Transfers transfers_;
};

// The largest extent that has its home on the device.
uint64_t staged_bytes(const StepShape& shape) {
  uint64_t largest = 0;
  for (const auto& tile : shape.layout().tiles()) {
    if (shape.resident()) largest = std::max(largest, shape.layout().weights_extent_bytes(tile));
    if (shape.state_on_device() && tile.trainable) largest = std::max(largest, shape.layout().state_extent_bytes(tile));
  }
  return largest;
}

}  // namespace

void load_homes(const StepShape& shape, StepBuffers& buffers, const offload::Store& store, int slot, Runtime& runtime,
                const Progress& progress) {
  const auto& tiles = shape.layout().tiles();
  Staging staging(runtime, staged_bytes(shape));
  Transfers transfers(*runtime.queue);
  for (uint32_t i = 0; i < tiles.size(); ++i) {
    std::byte* weights = buffers.weights_home(i);
    std::byte* state = buffers.state_home(i);
    if (state != nullptr) {
      const offload::Extent extent = store.extent(slot, i, offload::Part::state);
      shape.state_on_device() ? staging.load(extent, state) : transfers.add(io::IoOp::read, extent, state);
    }
    if (!shape.resident()) {
      if (weights != nullptr) transfers.add(io::IoOp::read, store.extent(slot, i, offload::Part::weights), weights);
    } else {
      const offload::Extent extent = store.extent(slot, i, offload::Part::weights);
      const at::Tensor resident = buffers.resident(tiles[i].block);
      std::byte* device = static_cast<std::byte*>(resident.data_ptr()) + buffers.offset_in_block(tiles[i]);
      staging.load(extent, device);
      StepBuffers::refilled(resident);
      if (weights != nullptr && weights != device) std::copy_n(staging.host(), extent.bytes, weights);
    }
    if (progress) progress(i + 1, tiles.size());
  }
  transfers.wait();
}

void store_homes(const StepShape& shape, StepBuffers& buffers, const offload::Store& store, int slot, Runtime& runtime,
                 std::vector<uint64_t>& hashes) {
  const offload::Layout& layout = shape.layout();
  const auto& tiles = layout.tiles();
  Staging staging(runtime, staged_bytes(shape));
  Transfers transfers(*runtime.queue);
  const auto put = [&](uint32_t tile, offload::Part part, std::byte* home, bool on_device) {
    if (home == nullptr) return;
    const offload::Extent extent = store.extent(slot, tile, part);
    on_device ? staging.store(home, extent) : transfers.add(io::IoOp::write, extent, home);
    hashes[2 * tile + (part == offload::Part::state ? 1 : 0)] =
        offload::hash_extent(layout.schema(), part, tiles[tile], {on_device ? staging.host() : home, extent.bytes});
  };
  for (uint32_t i = 0; i < tiles.size(); ++i) {
    if (!tiles[i].trainable) continue;
    // Resident weights are the home when the state is on the device too.
    put(i, offload::Part::weights, buffers.weights_home(i), shape.state_on_device());
    put(i, offload::Part::state, buffers.state_home(i), shape.state_on_device());
  }
  transfers.wait();
}

}  // namespace sluice::engine
