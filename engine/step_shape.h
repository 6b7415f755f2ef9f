// How large every arena of a run is, and the table that says so. Pure arithmetic: nothing is allocated.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "offload/layout.h"
#include "offload/plan.h"

namespace sluice::engine {

// What the sizes depend on, beside the layout.
struct StepOptions {
  offload::Tier weights = offload::Tier::nvme;
  offload::Tier state = offload::Tier::nvme;
  gpu::WireType wire = gpu::WireType::bf16;
  uint32_t micro_batches = 1;      // per step: gradient accumulation
  uint32_t micro_batch = 1;        // rows
  uint32_t sequence = 0;           // tokens of a row
  uint32_t hidden = 0;
  uint32_t pinned_tiles = 0;       // of tier nvme, in RAM (offload::PlanOptions)
  uint32_t first_shadow = UINT32_MAX;  // tiles from this one on keep a copy of their old state (offload::PlanOptions)
  uint32_t resident_blocks = 0;    // on the device with their state, whatever the tiers
  uint32_t rank = 0;               // of layout.world() ranks
  uint32_t zero_stage = 3;
  uint64_t comm_staging = 0;       // device memory of the communicator
  bool host_boundaries = false;    // block inputs live on the host between forward and backward
  uint32_t keep_graphs = 0;        // last layers, whose inputs stay on the device all the same
  bool training = true;            // false: forward and loss only
};

inline constexpr uint64_t kPeriodsAtWork = 3;  // of the executor, at most

struct MemoryRow {
  std::string place;    // "gpu", "host", "disk"
  std::string purpose;  // "weights", "gradients", ...
  uint64_t bytes = 0;
  bool measured = false;   // counted by a run
  bool estimated = false;  // by a formula that may be some percent off; neither: exact
  bool beside = false;     // not of the budget, which is for the others: no part of the total
};

// Bytes of one buffer of each ring, and of everything that is not in a ring.
class StepShape {
 public:
  // ring_sizes: the largest of the plans that share the buffers.
  StepShape(const offload::Layout& layout, const StepOptions& options, const std::array<uint32_t, offload::kRings>& ring_sizes);

  const offload::Layout& layout() const { return *layout_; }
  const StepOptions& options() const { return options_; }
  uint32_t ring_size(offload::Ring ring) const { return ring_sizes_[static_cast<size_t>(ring)]; }
  uint64_t ring_buffer_bytes(offload::Ring ring) const { return buffer_bytes_[static_cast<size_t>(ring)]; }
  uint64_t ring_bytes(offload::Ring ring) const { return ring_size(ring) * ring_buffer_bytes(ring); }

  // Weights that stay on the device in the compute type.
  bool resident(uint32_t block) const { return options_.weights == offload::Tier::none || block < options_.resident_blocks; }
  // State and wire gradients are device memory.
  bool state_on_device(uint32_t block) const { return options_.state == offload::Tier::none || block < options_.resident_blocks; }
  bool some_state_on_device() const { return state_on_device(0); }
  bool several_ranks() const { return layout_->world() > 1; }
  // Blocks are made of the shards of all ranks, visit by visit.
  bool gathers() const { return several_ranks() && options_.zero_stage == 3; }
  bool through_slots(uint32_t block) const { return !resident(block) || gathers(); }
  bool owns(uint32_t tile) const;  // updates it; in stage 0 every rank all tiles
  bool in_own_store(uint32_t tile) const { return layout_->tiles()[tile].shard == options_.rank; }
  // Of a block's resident weights: all of it, or of a gathered one this rank's shard, both segments padded.
  uint64_t resident_elements(uint32_t block) const;
  // Where a segment of this rank's shard begins in it.
  uint64_t shard_start(const offload::BlockPlace& block, bool trainable) const;
  uint64_t shard_elements(const offload::BlockPlace& block) const;

  // Is there a copy of this tile's weights (state) in memory for the whole run, and may it be found in RAM?
  bool has_weights_home(uint32_t tile) const;
  bool has_state_home(uint32_t tile) const;

  bool has_shadow(uint32_t tile) const;

  uint64_t weight_bytes() const { return offload::weight_bytes(layout_->schema()); }
  uint64_t boundary_bytes() const;  // one block input (or its gradient) of one micro-batch
  uint64_t boundaries() const;      // how many stay on the device in a place of their own
  // Has the input of the block such a place? Else it passes through rings.
  bool stays_on_device(uint32_t block) const;
  uint64_t host_boundaries() const;  // how many live on the host
  uint64_t token_bytes() const;     // one micro-batch: tokens, targets, positions, document starts
  uint64_t loss_bytes() const { return options_.micro_batches * sizeof(double); }  // of a step
  uint64_t leaf_sum_bytes() const;  // norms of one tile; 0 unless some of the state is on the device
  // Host: what goes to the device and comes back in small pieces: tokens and losses of each period at work, leaf sums.
  uint64_t exchange_bytes() const { return kPeriodsAtWork * (options_.micro_batches * token_bytes() + loss_bytes()) + leaf_sum_bytes(); }
  uint64_t weights_home_bytes() const;  // in RAM
  enum class Place { ram, device };
  uint64_t state_home_bytes(Place place) const;
  uint64_t shadow_bytes() const;
  // The gradients that wait for their update. Those of the tied head's part are with the embedding's.
  uint64_t gradient_bytes(Place place) const;
  uint64_t resident_bytes() const;

  // gpu and host arenas. "at work": buffers that blocks pass through, as large as the largest block however many ranks there are.
  std::vector<MemoryRow> rows() const;

 private:
  const offload::Layout* layout_;
  StepOptions options_;
  std::array<uint32_t, offload::kRings> ring_sizes_;
  std::array<uint64_t, offload::kRings> buffer_bytes_{};
};

// Does the block go through the big device slot and gradient? The tied head (a norm alone) goes through the layers'.
bool is_big(const offload::Layout& layout, uint32_t block);

uint64_t total(const std::vector<MemoryRow>& rows, const std::string& place);

}  // namespace sluice::engine
