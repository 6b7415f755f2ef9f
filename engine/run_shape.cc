#include "engine/run_shape.h"

#include <algorithm>

#include "engine/comm/comm.h"
#include "offload/store_slot_file.h"

namespace sluice::engine {

using offload::Durable;
using offload::Tier;

offload::PlanOptions train_plan_options(const TrainerOptions& o, const offload::Layout& layout, int64_t hidden) {
  offload::PlanOptions plan = o.plan;
  const auto layers = static_cast<uint32_t>(layout.blocks().size() - 2);
  plan.keep_graphs = std::min(plan.keep_graphs, layers);  // "all" is a very large number
  plan.keep_weights = std::min(plan.keep_weights, layers);
  plan.micro_batches = o.accumulation;
  plan.commit = o.store.durable == Durable::step;
  // Weights of tier none have their master hi with the state.
  const Tier master = plan.weights == Tier::none ? plan.state : plan.weights;
  plan.write_weights = plan.commit || master == Tier::nvme;
  plan.write_state = plan.commit || plan.state == Tier::nvme;
  const auto blocks = static_cast<uint32_t>(layout.blocks().size());
  plan.resident_blocks = plan.state == Tier::none ? blocks : std::min(plan.resident_blocks, blocks);
  if (plan.state == Tier::none) plan.state = Tier::cpu;  // of no block
  plan.pinned_tiles = count_pinned(layout, plan, o.pinned);
  if (guesses(plan.placement) && !plan.commit) plan.first_shadow = first_shadow(layout, plan, o.shadow);
  if (o.host_boundaries)
    plan.host_boundary_bytes = uint64_t{o.micro_batch} * o.sequence * static_cast<uint64_t>(hidden) * weight_bytes(layout.schema());
  return plan;
}

uint64_t comm_staging(const TrainerOptions& o, const offload::Layout& layout) {
  constexpr uint64_t kPage = 4096;
  uint64_t largest = 0;
  for (const auto& block : layout.blocks()) largest = std::max(largest, block.trainable_shard);
  const uint64_t share = std::min(largest, o.reduce_bucket / layout.world()) * gpu::wire_bytes(o.wire);
  return std::max(kPage, (share + kPage - 1) / kPage * kPage);
}

StepOptions step_options(const TrainerOptions& o, const offload::Layout& layout, int64_t hidden, const offload::PlanOptions& plan) {
  StepOptions s;
  s.weights = o.plan.weights;
  s.state = o.plan.state;
  s.wire = o.wire;
  s.micro_batches = o.accumulation;
  s.micro_batch = o.micro_batch;
  s.sequence = o.sequence;
  s.hidden = static_cast<uint32_t>(hidden);
  s.pinned_tiles = plan.pinned_tiles;
  s.first_shadow = plan.first_shadow;
  s.resident_blocks = o.plan.resident_blocks;
  s.rank = o.plan.rank;
  s.zero_stage = o.plan.zero_stage;
  s.comm_staging = comm::staging_bytes(static_cast<int>(layout.world()), comm_staging(o, layout));
  s.host_boundaries = o.host_boundaries;
  s.keep_graphs = plan.keep_graphs;
  return s;
}

std::array<uint32_t, offload::kRings> ring_sizes(const std::vector<const offload::Plan*>& plans) {
  std::array<uint32_t, offload::kRings> sizes{};
  for (const offload::Plan* plan : plans)
    for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = std::max(sizes[i], plan->rings[i].size);
  return sizes;
}

uint64_t commit_bytes(const StepShape& shape, Durable durable) {
  if (durable == Durable::step) return 0;
  const offload::Layout& layout = shape.layout();
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < layout.tiles().size(); ++i) {
    const offload::Tile& tile = layout.tiles()[i];
    if (!tile.trainable || !shape.in_own_store(i)) continue;
    if (shape.has_weights_home(i)) bytes += layout.weights_extent_bytes(tile);
    if (shape.has_state_home(i)) bytes += layout.state_extent_bytes(tile);
  }
  return bytes;
}

uint64_t load_bytes(const StepShape& shape) {
  const offload::Layout& layout = shape.layout();
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < layout.tiles().size(); ++i) {
    const offload::Tile& tile = layout.tiles()[i];
    if (!shape.in_own_store(i)) continue;
    if (shape.resident(tile.block) || shape.has_weights_home(i)) bytes += layout.weights_extent_bytes(tile);
    if (shape.has_state_home(i)) bytes += layout.state_extent_bytes(tile);
  }
  return bytes;
}

uint64_t disk_need(const offload::Layout& layout, Durable durable) {
  const offload::StoreGeometry geometry(layout);
  const uint64_t slots = durable == Durable::none ? 1 : 2;
  uint64_t bytes = offload::kSuperBytes;
  for (uint32_t rank = 0; rank < layout.world(); ++rank) bytes += slots * geometry.slot_bytes(rank) + geometry.base_bytes(rank);
  return bytes;
}

}  // namespace sluice::engine
