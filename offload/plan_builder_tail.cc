// What follows the last backward: updates of placement none, and the commit.
#include "offload/plan_builder_parts.h"

namespace sluice::offload {

// The embedding first: the next forward begins with it. No forward begins before all are done.
void PlanBuilder::updates_after_gate() {
  for (uint32_t b = 0; b <= head_; ++b)
    for (uint32_t t : owned_of(block(b).trainable_tiles)) {
      place_update(t, gate_slot() + 1 + static_cast<int32_t>(b));
      depend(static_cast<uint32_t>(first_forward_), tiles_[t].update, 1);
    }
}

// A generation is what Update made of the gradients of one period: deferred writes of the period after it
// belong to it too. The first write of the next generation waits for the publication, which frees the slot it
// goes to.
void PlanBuilder::commit() {
  std::vector<int32_t> deferred, others;
  for (const TileOps& ops : tiles_)
    for (int32_t write : {ops.write_weights, ops.write_state})
      if (write >= 0) (ops.deferred ? deferred : others).push_back(write);
  const bool late = !deferred.empty();
  const int32_t slot = late ? loss_slot() : gate_slot() + static_cast<int32_t>(head_) + 2;
  const uint32_t flush = add(OpKind::flush, Lane::commit, {slot, 9, 0});
  const uint32_t agree = add(OpKind::agree, Lane::commit, {slot, 9, 1});
  const uint32_t publish = add(OpKind::publish, Lane::commit, {slot, 9, 2});
  for (int32_t write : deferred) depend(flush, write, 0);
  for (int32_t write : others) depend(flush, write, late ? 1 : 0);
  depend(flush, gate_, late ? 1 : 0);  // a guess may have been wrong
  for (uint32_t i : {flush, agree, publish}) op(i).previous_step = late;
  depend(agree, static_cast<int32_t>(flush), 0);
  depend(publish, static_cast<int32_t>(agree), 0);
  for (int32_t write : others)
    depend(static_cast<uint32_t>(write), static_cast<int32_t>(publish), late ? 0 : 1);
  for (int32_t write : deferred) depend(static_cast<uint32_t>(write), static_cast<int32_t>(publish), 1);
}

}  // namespace sluice::offload
