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
  // Charges host arenas to `host`; Error(host_memory or device_memory) when a budget is exceeded.
  StepBuffers(const StepShape& shape, gpu::Device& device, base::Budget& host);

  // Host rings: weights, state, gradients (on the device when state is there).
  std::byte* ring(offload::Ring ring, uint32_t buffer) const;
  std::byte* weights_home(uint32_t tile) const;  // null when the tile has none
  std::byte* state_home(uint32_t tile) const;

  // Device weights of a block in a ring slot or, for tier none, resident.
  at::Tensor slot(offload::Ring ring, uint32_t buffer, uint32_t block) const;
  at::Tensor resident(uint32_t block) const { return resident_[block]; }
  // Where a tile lies in its block's device weights, in bytes.
  uint64_t offset_in_block(const offload::Tile& tile) const;
  // Marks a slot's content as changed: a live graph that still needs the old one will throw.
  static void refilled(const at::Tensor& slot);

  at::Tensor gradient(offload::Ring ring, uint32_t buffer, uint32_t block) const;  // fp32 [trainable]
  at::Tensor boundary(uint32_t block, uint32_t micro) const;  // input of block >= 1; [B, T, H]
  at::Tensor boundary_gradient(uint32_t micro) const;
  at::Tensor tokens(uint32_t micro) const;  // int64 [3, B, T]: tokens, targets, positions

  std::vector<std::span<std::byte>> host_regions() const;  // for registration with the disk queue

 private:
  struct HostArena {
    base::Reservation charge;
    base::Arena arena;
  };
  std::byte* host(base::Budget& budget, const std::string& purpose, uint64_t bytes);
  std::byte* device(gpu::Device& device, const std::string& purpose, uint64_t bytes);
  void place_rings(gpu::Device& device, base::Budget& host);
  void place_homes(gpu::Device& device, base::Budget& host);
  void make_slots(gpu::Device& device);
  void make_step_tensors(gpu::Device& device);

  const StepShape shape_;
  std::vector<HostArena> host_arenas_;
  std::vector<std::unique_ptr<gpu::DeviceBuffer>> device_arenas_;
  std::array<std::byte*, offload::kRings> rings_{};
  std::vector<std::byte*> weights_homes_, state_homes_;            // by tile
  std::array<std::vector<at::Tensor>, offload::kRings> slots_;     // device rings: weights or fp32 gradients
  std::vector<at::Tensor> resident_;                               // by block; tier none
  std::vector<at::Tensor> boundaries_;                             // inputs by (block, micro-batch), then gradients
  at::Tensor tokens_;
};

}  // namespace sluice::engine
