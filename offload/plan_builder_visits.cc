// Weights to the device, and the computations that need them.
#include "base/error.h"
#include "offload/plan_builder_parts.h"

namespace sluice::offload {

// Reads and copies in block b for compute slot `slot`. Deferred updates take place here, between the two.
PlanBuilder::Visited PlanBuilder::visit(uint32_t b, int32_t slot, Visit kind) {
  Visited visited;
  for (uint32_t t : tiles_of(b)) {
    const bool updated = train_ && tile(t).trainable;
    if (updated && tiles_[t].deferred && kind != Visit::backward) place_update(t, slot);
    if (!resident(b)) {
      copy_in(t, slot, kind, visited);
    } else if (updated) {
      visited.after.emplace_back(tiles_[t].refresh, tiles_[t].deferred ? 0 : 1);
    }
  }
  if (gathers()) gather(b, slot, kind, visited);
  if (replicates() && block(b).trainable > 0) gather_updated(b, slot, visited);
  return visited;
}

Ring PlanBuilder::slot_ring(uint32_t b) const {
  return big(b) ? Ring::device_big : kept(b) ? Ring::device_kept : Ring::device_layer;
}

void PlanBuilder::copy_in(uint32_t t, int32_t slot, Visit kind, Visited& visited) {
  const uint32_t b = tile(t).block;
  const uint32_t copy = add_tile(OpKind::copy_in, Lane::h2d, {slot, 0, place_in_slot(t)}, t,
                                 layout_.weights_extent_bytes(tile(t)));
  op(copy).visit = kind;
  if (visited.slot) {
    use(copy, *visited.slot);
  } else {
    visited.slot = acquire(copy, !gathers() ? slot_ring(b) : big(b) ? Ring::shard_big : Ring::shard_layer);
  }
  visited.after.emplace_back(copy, 0);

  const bool updated = train_ && tile(t).trainable;
  if (updated && tiles_[t].deferred && kind != Visit::backward) {  // straight from Update's tile
    depend(copy, tiles_[t].update, 0);
    if (const Use* tile_use = find_use(op(tiles_[t].update), Ring::weights)) use(copy, *tile_use);
  } else if (master_on_disk(layout_, options_, t)) {
    use(copy, read_for_visit(t, slot, kind, copy));
  } else if (updated) {  // from its home in RAM
    depend(copy, tiles_[t].update, tiles_[t].deferred ? 0 : 1);
  }
}

// A read names its generation: of a deferred tile this period's, else that of the period before. Frozen tiles
// have but one.
Use PlanBuilder::read_for_visit(uint32_t t, int32_t slot, Visit kind, uint32_t copy) {
  const uint32_t read = add_tile(OpKind::read_weights, Lane::disk_weights, {slot, 0, place_in_slot(t)}, t,
                                 layout_.weights_extent_bytes(tile(t)));
  op(read).visit = kind;
  depend(copy, static_cast<int32_t>(read), 0);
  if (!train_ || !tile(t).trainable) return acquire(read, Ring::weights);
  TileOps& ops = tiles_[t];
  depend(read, ops.write_weights, ops.deferred ? 0 : 1);
  const bool held = updates_on_guess() && !ops.deferred && kind != Visit::forward;
  const Use made = acquire(read, held ? Ring::weights_held : Ring::weights);
  if (held) ops.held = made;
  return made;
}

std::vector<uint32_t> PlanBuilder::compute(OpKind kind, uint32_t b, int32_t slot, const Visited& visited) {
  std::vector<uint32_t> micro;
  for (uint32_t j = 0; j < options_.micro_batches; ++j) {
    const uint32_t i = add(kind, Lane::compute, {slot, 0, static_cast<float>(j)});
    op(i).block = static_cast<int32_t>(b);
    op(i).micro = static_cast<int32_t>(j);
    op(i).last_micro = j + 1 == options_.micro_batches;
    if (j == 0)  // the lane runs one operation at a time, in order
      for (const auto& [on, periods] : visited.after) depend(i, static_cast<int32_t>(on), periods);
    if (j < previous_.size()) depend(i, static_cast<int32_t>(previous_[j]), 0);
    if (visited.slot) use(i, *visited.slot);
    if (options_.host_boundary_bytes != 0) pass_boundary(kind, b, j, i);
    micro.push_back(i);
  }
  // In training a gate stands between the two.
  if (!train_ && visited.replicated >= 0) depend(static_cast<uint32_t>(visited.replicated), static_cast<int32_t>(micro.back()), 1);
  previous_ = micro;
  return micro;
}

std::optional<Use> PlanBuilder::gradient_buffer(const std::vector<uint32_t>& micro, uint32_t b) {
  if (block(b).trainable == 0) return std::nullopt;
  const Use made = acquire(micro[0], big(b) ? Ring::grad_big : Ring::grad_layer);
  for (size_t j = 1; j < micro.size(); ++j) use(micro[j], made);
  return made;
}

void PlanBuilder::forwards() {
  for (uint32_t b = 0; b < head_; ++b) {
    const auto slot = static_cast<int32_t>(b);
    const Visited visited = visit(b, slot, Visit::forward);
    const std::vector<uint32_t> micro = compute(OpKind::forward, b, slot, visited);
    if (b == 0) {
      first_forward_ = static_cast<int32_t>(micro[0]);
      depend(micro[0], gate_, 1);
      if (layout_.tied()) tied_slot_ = visited.slot;
    }
    // A kept block's backward finds its weights where the forward left them.
    if (train_ && kept(b)) kept_slots_[b] = visited.slot;
  }
}

void PlanBuilder::loss() {
  const std::vector<uint32_t> micro =
      compute(OpKind::loss, head_, loss_slot(), visit(head_, loss_slot(), Visit::loss));
  if (tied_slot_)
    for (uint32_t i : micro) use(i, *tied_slot_);
  if (!train_) return;
  const std::optional<Use> own = gradient_buffer(micro, head_);
  const std::optional<Use> tied = layout_.tied() ? gradient_buffer(micro, 0) : std::nullopt;
  if (own) land(head_, loss_slot(), micro.back(), *own, false);
  if (tied) land(0, loss_slot(), micro.back(), *tied, true);
}

void PlanBuilder::backwards() {
  for (uint32_t b = head_ - 1; b + 1 > lowest_; --b) {
    const int32_t slot = backward_slot(b);
    Visited visited;  // the embedding's backward needs no weights
    if (kept(b)) {
      visited.slot = kept_slots_[b];
    } else if (b > 0 && through_slots(b)) {
      visited = visit(b, slot, Visit::backward);
    }
    const std::vector<uint32_t> micro = compute(OpKind::backward, b, slot, visited);
    if (const std::optional<Use> gradient = gradient_buffer(micro, b))
      land(b, slot, micro.back(), *gradient, false);
    if (b == 0) break;
  }
}

}  // namespace sluice::offload
