// Gradients on their way to the host, norms, updates and the writes that follow.
#include "base/error.h"
#include "offload/plan_builder_parts.h"

namespace sluice::offload {

// What compute slot `slot` left in the device gradient buffer of block b.
void PlanBuilder::land(uint32_t b, int32_t slot, uint32_t last, const Use& gradient, bool tied_part) {
  const Use from = several_ranks() ? reduce(b, slot, last, gradient, tied_part) : gradient;
  for (uint32_t t : owned_of(block(b).trainable_tiles)) land_tile(t, slot, last, from, tied_part);
}

void PlanBuilder::land_tile(uint32_t t, int32_t slot, uint32_t last, const Use& from, bool tied_part) {
  TileOps& ops = tiles_[t];
  const float place = place_in_slot(t);
  const bool stays = on_device(tile(t).block);
  const uint32_t copy =
      add_tile(OpKind::copy_out, Lane::d2h, {slot, 0, place}, t, stays ? 0 : tile(t).count * wire_bytes_);
  op(copy).tied_part = tied_part;
  op(copy).on_device = stays;
  depend(copy, static_cast<int32_t>(last), 0);
  const Use wire = acquire(copy, tied_part ? Ring::tied_gradients : stays ? Ring::device_gradients : Ring::gradients);
  use(copy, from);

  const auto norm = static_cast<uint32_t>(ops.norm), update = static_cast<uint32_t>(ops.update),
             gate = static_cast<uint32_t>(gate_);
  depend(norm, static_cast<int32_t>(copy), 0);
  use(norm, wire);
  use(update, wire, ops.deferred ? 1 : 0);
  if (updates_on_guess() && !ops.deferred) use(gate, wire);  // a wrong guess is redone from the gradients
  if (tied_part) return;                                     // the rest comes with the embedding's own part

  op(norm).key = {slot, 2, place - 0.5f};
  depend(gate, ops.norm, 0);
  if (updates_on_guess() && !ops.deferred) place_update(t, slot);
}

// Puts Update and all around it into compute slot `slot`: a deferred one before the visit that needs its
// result, another one after the gradients of that slot.
void PlanBuilder::place_update(uint32_t t, int32_t slot) {
  const TileOps& ops = tiles_[t];
  const auto update = static_cast<uint32_t>(ops.update);
  const float place = place_in_slot(t);
  op(update).key = {slot, ops.deferred ? -1.0f : 2.0f, place};
  op(update).previous_step = ops.deferred;
  depend(update, ops.norm, ops.deferred ? 1 : 0);
  if (ops.deferred || options_.placement == Placement::none) depend(update, gate_, ops.deferred ? 1 : 0);

  std::optional<Use> state;
  if (state_on_disk(layout_, options_, t)) {
    const uint32_t read =
        add_tile(OpKind::read_state, Lane::disk_state, {slot, ops.deferred ? 0.0f : 1.0f, place}, t,
                 layout_.state_extent_bytes(tile(t)));
    op(read).previous_step = ops.deferred;
    depend(read, ops.write_state, 1);
    state = acquire(read, Ring::state);
    depend(update, static_cast<int32_t>(read), 0);
    use(update, *state);
  } else {
    depend(update, ops.write_state, 1);  // the home must not change while it is written
  }
  const std::optional<Use> weights = weights_for_update(t, slot);
  if (weights) {
    use(update, *weights);
  } else {
    depend(update, ops.write_weights, 1);
  }
  place_writes(t, weights, state);
  if (resident(tile(t).block)) place_refresh(t, slot, weights);
}

// The host tile of the master weights; none when they have a home.
std::optional<Use> PlanBuilder::weights_for_update(uint32_t t, int32_t slot) {
  const TileOps& ops = tiles_[t];
  if (!master_on_disk(layout_, options_, t)) return std::nullopt;
  if (ops.held) return ops.held;
  const uint32_t read =
      add_tile(OpKind::read_weights, Lane::disk_weights, {slot, ops.deferred ? 0.0f : 1.0f, place_in_slot(t)},
               t, layout_.weights_extent_bytes(tile(t)));
  op(read).visit = Visit::update;
  op(read).previous_step = ops.deferred;
  depend(read, ops.write_weights, 1);
  depend(static_cast<uint32_t>(ops.update), static_cast<int32_t>(read), 0);
  return acquire(read, Ring::weights);
}

void PlanBuilder::place_writes(uint32_t t, const std::optional<Use>& weights,
                               const std::optional<Use>& state) {
  const TileOps& ops = tiles_[t];
  const auto place = [&](int32_t write, int32_t sub, const std::optional<Use>& buffer) {
    if (write < 0) return;
    const auto i = static_cast<uint32_t>(write);
    op(i).key = op(static_cast<uint32_t>(ops.update)).key;
    op(i).key.sub = sub;
    op(i).previous_step = ops.deferred;
    depend(i, ops.update, 0);
    if (buffer) use(i, *buffer);
  };
  place(ops.write_weights, 0, weights);
  place(ops.write_state, 1, state);
}

// Weights that live on the device get the updated tile once. All that used the old one precede its gradient,
// so the Update.
void PlanBuilder::place_refresh(uint32_t t, int32_t slot, const std::optional<Use>& weights) {
  const TileOps& ops = tiles_[t];
  const auto refresh = static_cast<uint32_t>(ops.refresh);
  op(refresh).key = {slot, ops.deferred ? 0.0f : 2.0f, place_in_slot(t)};
  op(refresh).previous_step = ops.deferred;
  depend(refresh, ops.update, 0);
  if (weights) use(refresh, *weights);
}

}  // namespace sluice::offload
