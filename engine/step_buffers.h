// The memory of a run: every arena of a StepShape, allocated once, and where each ring buffer, home and slot lies in it.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "base/arena.h"
#include "base/budget.h"
#include "engine/model.h"
#include "engine/step_shape.h"
#include "gpu/device.h"

namespace sluice::engine {

// Addresses are fixed for the life of the object. Reading them is thread-safe; who may touch the bytes when is the plan's business.
// Device tensors are made once over their arena: a slot is one storage for its whole life, so that its version counter is the one
// every graph has seen.
class StepBuffers {
 public:
  // Charges host arenas to `host` and registers with the device what crosses to it. Device and budget outlive the object.
  // Error(host_memory or device_memory) when a budget is exceeded.
  StepBuffers(const StepShape& shape, gpu::Device& device, base::Budget& host);

  // Rings of tiles: on the host, but for the gradients of state on the device; and of bytes on the device.
  std::byte* ring(offload::Ring ring, uint32_t buffer) const;
  std::byte* weights_home(uint32_t tile) const;  // null when the tile has none
  std::byte* state_home(uint32_t tile) const;
  std::byte* shadow(uint32_t tile) const;  // weights extent, then state extent; null when the tile has none

  // A device buffer with all its elements.
  at::Tensor whole(offload::Ring ring, uint32_t buffer) const { return slots_[static_cast<size_t>(ring)].at(buffer); }
  // Device weights of a block in a ring slot, or resident.
  at::Tensor slot(offload::Ring ring, uint32_t buffer, uint32_t block) const;
  at::Tensor resident(uint32_t block) const { return resident_[block]; }  // all of it, or this rank's shard (StepShape::gathers)
  // Where a tile lies in its block's device weights, or in this rank's shard of them, in bytes.
  uint64_t offset_in_block(const offload::Tile& tile) const;
  uint64_t offset_in_shard(const offload::Tile& tile) const;
  // Of a tile of a resident block.
  std::byte* resident_place(const offload::Tile& tile) const;
  // Marks a slot's content as changed: a live graph that still needs the old one will throw.
  static void refilled(const at::Tensor& slot);

  at::Tensor gradient(offload::Ring ring, uint32_t buffer, uint32_t block) const;  // fp32 [trainable]
  at::Tensor boundary(uint32_t block, uint32_t micro) const;  // input of block >= 1 that has a place of its own; [B, T, H]
  std::byte* host_boundary(uint32_t block, uint32_t micro) const;  // of one that lives on the host
  at::Tensor any_input(uint32_t block) const;  // a buffer that an input of the block may lie in
  at::Tensor boundary_gradient(uint32_t micro) const;
  at::Tensor tokens(uint32_t micro) const;  // int64 [4, B, T], as HostMicroBatch::ids
  at::Tensor loss(uint32_t micro) const;    // double []

  // Host memory that the device copies from and to: one micro-batch's tokens, one loss.
  std::byte* host_tokens(uint64_t period, uint32_t micro) const;
  double* host_loss(uint64_t period, uint32_t micro) const;
  // Of one tile; null unless some of the state is on the device.
  double* leaf_sums() const { return leaf_sums_; }
  double* host_leaf_sums() const;

  std::vector<std::span<std::byte>> host_regions() const;  // for registration with the disk queue

 private:
  struct HostArena {
    base::Reservation charge;
    base::Arena arena;
    std::unique_ptr<gpu::HostRegistration> registered;  // null: the device does not copy from or to it
  };
  enum class Crosses { no, to_device };
  std::byte* host(const std::string& purpose, uint64_t bytes, Crosses crosses);
  std::byte* device(const std::string& purpose, uint64_t bytes);
  at::Tensor over(std::byte* data, at::IntArrayRef sizes, at::ScalarType type) const;
  void place_rings();
  void place_homes();
  void make_slots();
  void make_step_tensors();

  const StepShape shape_;
  gpu::Device& device_;
  base::Budget& host_;
  std::vector<HostArena> host_arenas_;
  std::vector<std::unique_ptr<gpu::DeviceBuffer>> device_arenas_;
  std::array<std::byte*, offload::kRings> rings_{};
  std::vector<std::byte*> weights_homes_, state_homes_, shadows_;            // by tile
  std::array<std::vector<at::Tensor>, offload::kRings> slots_;     // device rings: weights or fp32 gradients
  std::vector<at::Tensor> resident_;                               // by block; none where it is not resident
  std::vector<at::Tensor> boundaries_;                             // inputs by (block, micro-batch), then gradients
  at::Tensor tokens_, losses_;
  std::byte* host_boundaries_ = nullptr;  // by (block, micro-batch)
  std::byte* exchange_ = nullptr;  // host: tokens by (period, micro-batch), then losses, then leaf sums
  double* leaf_sums_ = nullptr;    // device
};

}  // namespace sluice::engine
