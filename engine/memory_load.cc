#include "engine/memory_load.h"

#include <deque>
#include <future>

#include "base/arena.h"
#include "base/error.h"

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
  Transfers& transfers() { return transfers_; }

 private:
  Runtime& runtime_;
  const base::Arena arena_;
  const std::unique_ptr<gpu::HostRegistration> registered_;
  Transfers transfers_;
};

// What other ranks have read, where this one keeps it too: an extent at a time, through device memory, which is what ranks exchange.
class Replicas {
 public:
  Replicas(Runtime& runtime, const Staging& staging, uint64_t bytes)
      : runtime_(runtime), staging_(staging), bytes_(bytes), device_(runtime.device->allocate(bytes, "loading")) {}

  // Collective. `bytes` of staging host memory of rank `owner`; on the others they come there too.
  void share(uint32_t owner, uint64_t bytes) {
    SLUICE_CHECK(bytes <= bytes_, "an extent to share");
    std::vector<comm::Part> parts(static_cast<size_t>(runtime_.comm->world()));
    parts[owner] = {0, bytes / sizeof(uint16_t)};
    if (runtime_.comm->rank() == static_cast<int>(owner)) runtime_.network->copy_in(device_->data(), staging_.host(), bytes);
    runtime_.comm->all_gather(*runtime_.network, device_->data(), device_->data(), parts, gpu::WireType::bf16);
    runtime_.network->copy_out(staging_.host(), device_->data(), bytes);
    runtime_.network->synchronize();
  }

 private:
  Runtime& runtime_;
  const Staging& staging_;
  const uint64_t bytes_;
  const std::unique_ptr<gpu::DeviceBuffer> device_;
};

bool keeps_all(const StepShape& shape) { return shape.several_ranks() && !shape.gathers(); }

// The largest extent that has its home on the device, or is shared with other ranks.
uint64_t staged_bytes(const StepShape& shape) {
  uint64_t largest = 0;
  for (const auto& tile : shape.layout().tiles()) {
    if (shape.resident(tile.block) || keeps_all(shape)) largest = std::max(largest, shape.layout().weights_extent_bytes(tile));
    if ((shape.state_on_device(tile.block) || keeps_all(shape)) && tile.trainable) largest = std::max(largest, shape.layout().state_extent_bytes(tile));
  }
  return largest;
}

}  // namespace

namespace {

// One rank, or shards that no other rank keeps.
void load_shard(const StepShape& shape, StepBuffers& buffers, const offload::Store& store, int slot, Runtime& runtime, Staging& staging,
                const Progress& progress) {
  const auto& tiles = shape.layout().tiles();
  Transfers transfers(*runtime.queue);
  for (uint32_t i = 0; i < tiles.size(); ++i) {
    if (!shape.owns(i)) continue;
    std::byte* weights = buffers.weights_home(i);
    std::byte* state = buffers.state_home(i);
    if (state != nullptr) {
      const offload::Extent extent = store.extent(slot, i, offload::Part::state);
      shape.state_on_device(tiles[i].block) ? staging.load(extent, state) : transfers.add(io::IoOp::read, extent, state);
    }
    if (!shape.resident(tiles[i].block)) {
      if (weights != nullptr) transfers.add(io::IoOp::read, store.extent(slot, i, offload::Part::weights), weights);
    } else {
      const offload::Extent extent = store.extent(slot, i, offload::Part::weights);
      std::byte* device = buffers.resident_place(tiles[i]);
      staging.load(extent, device);
      StepBuffers::refilled(buffers.resident(tiles[i].block));
      if (weights != nullptr && weights != device) std::copy_n(staging.host(), extent.bytes, weights);
    }
    if (progress) progress(i + 1, tiles.size());
  }
  transfers.wait();
}

// Every extent that any rank but its owner keeps is read by the owner and passed on.
void load_shared(const StepShape& shape, StepBuffers& buffers, const offload::Store& store, int slot, Runtime& runtime, Staging& staging,
                 const Progress& progress) {
  const auto& tiles = shape.layout().tiles();
  Replicas replicas(runtime, staging, staged_bytes(shape));
  for (uint32_t i = 0; i < tiles.size(); ++i) {
    const auto fetch = [&](offload::Part part, uint64_t bytes) {
      if (shape.in_own_store(i)) {
        staging.transfers().add(io::IoOp::read, store.extent(slot, i, part), staging.host());
        staging.transfers().wait();
      }
      replicas.share(tiles[i].shard, bytes);
    };
    const auto keep = [&](std::byte* home, bool on_device, uint64_t bytes) {
      if (home == nullptr) return;
      if (!on_device) {
        std::copy_n(staging.host(), bytes, home);
        return;
      }
      runtime.h2d->copy_in(home, staging.host(), bytes);
      runtime.h2d->synchronize();
    };
    const uint64_t weights_bytes = shape.layout().weights_extent_bytes(tiles[i]), state_bytes = shape.layout().state_extent_bytes(tiles[i]);
    fetch(offload::Part::weights, weights_bytes);
    const bool resident = shape.resident(tiles[i].block), state_on_device = shape.state_on_device(tiles[i].block);
    if (resident) {
      keep(buffers.resident_place(tiles[i]), true, weights_bytes);
      StepBuffers::refilled(buffers.resident(tiles[i].block));
    }
    if (buffers.weights_home(i) != nullptr && !(resident && state_on_device))
      keep(buffers.weights_home(i), false, weights_bytes);
    if (tiles[i].trainable) {
      fetch(offload::Part::state, state_bytes);
      keep(buffers.state_home(i), state_on_device, state_bytes);
    }
    if (progress) progress(i + 1, tiles.size());
  }
}

}  // namespace

void load_homes(const StepShape& shape, StepBuffers& buffers, const offload::Store& store, int slot, Runtime& runtime,
                const Progress& progress) {
  Staging staging(runtime, staged_bytes(shape));
  (keeps_all(shape) && runtime.comm ? load_shared : load_shard)(shape, buffers, store, slot, runtime, staging, progress);
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
    if (!tiles[i].trainable || !shape.in_own_store(i)) continue;
    // Resident weights are the home where the state is on the device too.
    const bool on_device = shape.state_on_device(tiles[i].block);
    put(i, offload::Part::weights, buffers.weights_home(i), on_device);
    put(i, offload::Part::state, buffers.state_home(i), on_device);
  }
  transfers.wait();
}

}  // namespace sluice::engine
