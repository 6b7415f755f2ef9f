#include "engine/step_shape.h"

#include <algorithm>

namespace sluice::engine {

using offload::Ring;
using offload::Tier;

StepShape::StepShape(const offload::Layout& layout, const StepOptions& options,
                     const std::array<uint32_t, offload::kRings>& ring_sizes)
    : layout_(&layout), options_(options), ring_sizes_(ring_sizes) {
  uint64_t tile = 0;
  for (const auto& t : layout.tiles()) tile = std::max(tile, t.padded);
  const auto set = [&](Ring ring, uint64_t bytes) { buffer_bytes_[static_cast<size_t>(ring)] = bytes; };
  set(Ring::weights, tile * weight_bytes());
  set(Ring::weights_held, tile * weight_bytes());
  set(Ring::state, tile * offload::state_bytes(layout.schema()));
  set(Ring::gradients, tile * gpu::wire_bytes(options.wire));
  set(Ring::device_gradients, tile * gpu::wire_bytes(options.wire));
  set(Ring::tied_gradients, tile * gpu::wire_bytes(options.wire));

  for (const Ring ring : {Ring::boundary_even, Ring::boundary_odd, Ring::boundary_back}) set(ring, boundary_bytes());

  uint64_t layer = 0, big = 0, grad_layer = 0, grad_big = 0, shard_layer = 0, shard_big = 0;
  for (uint32_t b = 0; b < layout.blocks().size(); ++b) {
    const auto& block = layout.blocks()[b];
    uint64_t& elements = is_big(layout, b) ? big : layer;
    uint64_t& gradient = is_big(layout, b) ? grad_big : grad_layer;
    elements = std::max(elements, block.device_elements());
    uint64_t& shard = is_big(layout, b) ? shard_big : shard_layer;
    shard = std::max(shard, shard_elements(block));
    gradient = std::max(gradient, block.trainable);
  }
  set(Ring::device_layer, layer * weight_bytes());
  set(Ring::device_kept, layer * weight_bytes());
  set(Ring::device_big, big * weight_bytes());
  set(Ring::grad_layer, grad_layer * sizeof(float));
  set(Ring::grad_big, grad_big * sizeof(float));
  set(Ring::shard_layer, shard_layer * weight_bytes());
  set(Ring::shard_big, shard_big * weight_bytes());
  set(Ring::wire_layer, grad_layer * gpu::wire_bytes(options.wire));
  set(Ring::wire_big, grad_big * gpu::wire_bytes(options.wire));
}

bool StepShape::owns(uint32_t tile) const {
  return !several_ranks() || options_.zero_stage == 0 || layout_->tiles()[tile].shard == options_.rank;
}

namespace {
uint64_t padded(uint64_t elements) { return (elements + offload::kExtentAlign - 1) / offload::kExtentAlign * offload::kExtentAlign; }
}  // namespace

uint64_t StepShape::shard_start(const offload::BlockPlace& block, bool trainable) const {
  return trainable ? 0 : padded(block.shard(true, options_.rank).count);
}

uint64_t StepShape::shard_elements(const offload::BlockPlace& block) const {
  return shard_start(block, false) + padded(block.shard(false, options_.rank).count);
}

uint64_t StepShape::resident_elements(uint32_t block) const {
  const auto& place = layout_->blocks()[block];
  return gathers() ? shard_elements(place) : place.device_elements();
}

bool StepShape::has_weights_home(uint32_t tile) const {
  if (!owns(tile)) return false;
  if (state_on_device(layout_->tiles()[tile].block)) return has_state_home(tile);
  switch (options_.weights) {
    case Tier::nvme: return tile < options_.pinned_tiles;
    case Tier::cpu: return true;
    case Tier::none: return has_state_home(tile);  // the master's upper half goes with the state
  }
  return false;
}

bool StepShape::has_state_home(uint32_t tile) const {
  const auto& place = layout_->tiles()[tile];
  const bool in_memory = options_.state != Tier::nvme || tile < options_.pinned_tiles || state_on_device(place.block);
  return options_.training && owns(tile) && place.trainable && in_memory;
}

bool StepShape::has_shadow(uint32_t tile) const {
  return tile >= options_.first_shadow && has_state_home(tile) && !state_on_device(layout_->tiles()[tile].block);
}

uint64_t StepShape::shadow_bytes() const {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < layout_->tiles().size(); ++i)
    if (has_shadow(i)) bytes += layout_->weights_extent_bytes(layout_->tiles()[i]) + layout_->state_extent_bytes(layout_->tiles()[i]);
  return bytes;
}

uint64_t StepShape::boundary_bytes() const {
  return uint64_t{options_.micro_batch} * options_.sequence * options_.hidden * weight_bytes();
}

bool StepShape::stays_on_device(uint32_t block) const {
  if (!options_.host_boundaries) return true;
  const auto head = static_cast<uint32_t>(layout_->blocks().size() - 1);
  return options_.training && block < head && block + options_.keep_graphs >= head;
}

uint64_t StepShape::host_boundaries() const {
  if (!options_.host_boundaries || !options_.training) return 0;
  uint64_t inputs = 0;
  for (uint32_t b = 1; b + 1 < layout_->blocks().size(); ++b) inputs += stays_on_device(b) ? 0 : 1;
  return options_.micro_batches * inputs;
}

uint64_t StepShape::boundaries() const {
  // Inputs of every block but the embedding, then one gradient per micro-batch. Evaluation reuses one input in place.
  uint64_t inputs = options_.training ? layout_->blocks().size() - 1 : 1;
  if (options_.host_boundaries) {
    inputs = 0;
    for (uint32_t b = 1; b < layout_->blocks().size(); ++b) inputs += stays_on_device(b) ? 1 : 0;
  }
  return uint64_t{options_.micro_batches} * (inputs + (options_.training ? 1 : 0));
}

uint64_t StepShape::token_bytes() const { return 4ull * options_.micro_batch * options_.sequence * sizeof(int64_t); }

uint64_t StepShape::leaf_sum_bytes() const {
  return some_state_on_device() ? layout_->tile_elements() / offload::kLeafElements * sizeof(double) : 0;
}

uint64_t StepShape::weights_home_bytes() const {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < layout_->tiles().size(); ++i) {
    const auto& tile = layout_->tiles()[i];
    // Beside state on the device the resident weights are the home.
    if (has_weights_home(i) && !state_on_device(tile.block)) bytes += layout_->weights_extent_bytes(tile);
  }
  return bytes;
}

uint64_t StepShape::state_home_bytes(Place place) const {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < layout_->tiles().size(); ++i) {
    const auto& tile = layout_->tiles()[i];
    if (has_state_home(i) && state_on_device(tile.block) == (place == Place::device)) bytes += layout_->state_extent_bytes(tile);
  }
  return bytes;
}

uint64_t StepShape::gradient_bytes(Place place) const {
  const bool device = place == Place::device;
  return ring_bytes(device ? Ring::device_gradients : Ring::gradients) + (state_on_device(0) == device ? ring_bytes(Ring::tied_gradients) : 0);
}

uint64_t StepShape::resident_bytes() const {
  uint64_t elements = 0;
  for (uint32_t b = 0; b < layout_->blocks().size(); ++b)
    if (resident(b)) elements += resident_elements(b);
  return elements * weight_bytes();
}

std::vector<MemoryRow> StepShape::rows() const {
  const bool weights_pinned = (options_.weights == Tier::none ? options_.state : options_.weights) == Tier::nvme, state_pinned = options_.state == Tier::nvme;
  const uint64_t wires = ring_bytes(Ring::wire_layer) + ring_bytes(Ring::wire_big);
  const bool keeps_wires = options_.zero_stage == 1;  // the whole gradient, until its step ends
  const uint64_t weights_homes = weights_home_bytes(), state_homes = state_home_bytes(Place::ram);
  std::vector<MemoryRow> rows{
      {"gpu", "weights", resident_bytes()},
      {"gpu", "weights at work", ring_bytes(Ring::device_layer) + ring_bytes(Ring::device_kept) + ring_bytes(Ring::device_big) +
                                     ring_bytes(Ring::shard_layer) + ring_bytes(Ring::shard_big)},
      {"gpu", "gradients", gradient_bytes(Place::device) + (keeps_wires ? wires : 0)},
      {"gpu", "gradients at work", ring_bytes(Ring::grad_layer) + ring_bytes(Ring::grad_big) + (keeps_wires ? 0 : wires)},
      {"gpu", "optimizer state", state_home_bytes(Place::device) + leaf_sum_bytes()},
      {"gpu", "boundaries", boundaries() * boundary_bytes() + ring_bytes(Ring::boundary_even) + ring_bytes(Ring::boundary_odd) +
                                ring_bytes(Ring::boundary_back)},
      {"gpu", "communication", options_.comm_staging},
      {"gpu", "tokens", options_.micro_batches * token_bytes() + loss_bytes()},
      {"host", "weights", ring_bytes(Ring::weights) + ring_bytes(Ring::weights_held) + (weights_pinned ? 0 : weights_homes)},
      {"host", "optimizer state", ring_bytes(Ring::state) + (state_pinned ? 0 : state_homes)},
      {"host", "pinned set", (weights_pinned ? weights_homes : 0) + (state_pinned ? state_homes : 0)},
      {"host", "shadows", shadow_bytes()},
      {"host", "gradients", gradient_bytes(Place::ram)},
      {"host", "boundaries", host_boundaries() * boundary_bytes()},
      {"host", "tokens", exchange_bytes()},
  };
  std::erase_if(rows, [](const MemoryRow& row) { return row.bytes == 0; });
  return rows;
}

bool is_big(const offload::Layout& layout, uint32_t block) {
  const offload::BlockKind kind = layout.blocks()[block].kind;
  return kind == offload::BlockKind::embedding || (kind == offload::BlockKind::head && !layout.tied());
}

uint64_t total(const std::vector<MemoryRow>& rows, const std::string& place) {
  uint64_t sum = 0;
  for (const auto& row : rows)
    if (row.place == place && !row.beside) sum += row.bytes;
  return sum;
}

}  // namespace sluice::engine
