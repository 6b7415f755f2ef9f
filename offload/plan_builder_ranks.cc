// Collectives between the ranks: weights gathered, gradients reduced. Every rank makes the same ones in the same order.
#include <algorithm>

#include "offload/plan_builder_parts.h"

namespace sluice::offload {

// Elements that this rank receives to have the whole segment.
uint64_t PlanBuilder::of_others(uint32_t b, bool trainable) const {
  return (trainable ? block(b).trainable : block(b).frozen) - block(b).shard(trainable, options_.rank).count;
}

// Ahead of the visit: before the reduction of an earlier block, which would keep the lane waiting for that block's backward. As far as the
// device has slots.
void PlanBuilder::gather(uint32_t b, int32_t slot, Visit kind, Visited& visited) {
  const uint32_t slots = options_.pools.device_slots != 0 ? options_.pools.device_slots : 2;
  const auto ahead = static_cast<int32_t>(std::min(slots, 2u));
  const uint32_t i = add(OpKind::gather, Lane::comm, {slot - ahead, 0.5f, static_cast<float>(b)});
  op(i).visit = kind;
  op(i).block = static_cast<int32_t>(b);
  op(i).bytes = (of_others(b, true) + of_others(b, false)) * weight_bytes(layout_.schema());
  op(i).collectives = (block(b).trainable > 0 ? 1 : 0) + (block(b).frozen > 0 ? 1 : 0);
  for (const auto& [on, periods] : visited.after) depend(i, static_cast<int32_t>(on), periods);
  if (b == 0) depend(i, gate_, 1);
  const std::optional<Use> shard = visited.slot;
  visited.slot = acquire(i, slot_ring(b));
  if (shard) use(i, *shard);
  visited.after = {{i, 0}};
}

// The shards that other ranks have updated, into the resident weights.
void PlanBuilder::gather_updated(uint32_t b, int32_t slot, Visited& visited) {
  const uint32_t i = add(OpKind::gather_updated, Lane::comm, {slot, 0.5f, static_cast<float>(b)});
  op(i).visit = Visit::forward;
  op(i).block = static_cast<int32_t>(b);
  op(i).bytes = of_others(b, true) * weight_bytes(layout_.schema());
  op(i).collectives = 1;
  for (const auto& [on, periods] : visited.after) depend(i, static_cast<int32_t>(on), periods);
  depend(i, gate_, 1);
  visited.after = {{i, 0}};
  visited.replicated = static_cast<int32_t>(i);
}

Use PlanBuilder::reduce(uint32_t b, int32_t slot, uint32_t& last, const Use& gradient, bool tied_part) {
  const uint32_t i = add(OpKind::reduce, Lane::comm, {slot, 1, tied_part ? 1.0f : 0.0f});
  op(i).block = static_cast<int32_t>(b);
  op(i).tied_part = tied_part;
  op(i).bytes = (layout_.world() - 1) * block(b).shard(true, options_.rank).count * wire_bytes_;
  op(i).collectives = 1;
  if (options_.zero_stage == 0) {  // the sums of the other shards come back
    op(i).bytes += of_others(b, true) * wire_bytes_;
    op(i).collectives = 2;
  }
  depend(i, static_cast<int32_t>(last), 0);
  const Use made = acquire(i, big(b) ? Ring::wire_big : Ring::wire_layer);
  use(i, gradient);
  depend(static_cast<uint32_t>(gate_), static_cast<int32_t>(i), 0);  // a rank may own nothing of the block
  last = i;
  return made;
}

}  // namespace sluice::offload
