// Block inputs that live on the host between forward and backward. Two rings on the device, for inputs of even and of odd blocks:
// while a block computes, one holds its inputs and the other what it makes.
#include <algorithm>

#include "offload/plan_builder_parts.h"

namespace sluice::offload {

bool PlanBuilder::moves_boundary(uint32_t b) const {
  const uint32_t graphs = std::min(options_.keep_graphs, head_ - 1);
  return train_ && b > 0 && b >= lowest_ && b + graphs < head_;
}

// The computation `i` of micro-batch j of block b: what it takes in, and what it leaves.
void PlanBuilder::pass_boundary(OpKind kind, uint32_t b, uint32_t j, uint32_t i) {
  if (kind == OpKind::backward) {
    if (moves_boundary(b)) load_boundary(b, j, i);
    return;
  }
  const std::optional<Use> input = inputs_[j];
  inputs_[j].reset();
  // The input of a block whose graph is kept is part of the graph, and stays where it is.
  const bool rings = !train_ || b + 1 == head_ || b + 1 < lowest_ || moves_boundary(b + 1);
  if (kind == OpKind::forward && rings) {
    inputs_[j] = acquire(i, (b + 1) % 2 == 0 ? Ring::boundary_even : Ring::boundary_odd);
    if (moves_boundary(b + 1)) save_boundary(b + 1, j, i);
  }
  if (input) use(i, *input);
}

void PlanBuilder::save_boundary(uint32_t b, uint32_t j, uint32_t made_by) {
  const uint32_t i = add(OpKind::save_boundary, Lane::d2h, {static_cast<int32_t>(b) - 1, 1, static_cast<float>(j)});
  op(i).block = static_cast<int32_t>(b);
  op(i).micro = static_cast<int32_t>(j);
  op(i).bytes = options_.host_boundary_bytes;
  depend(i, static_cast<int32_t>(made_by), 0);
  use(i, *inputs_[j]);
  saved_[b].push_back(i);
}

void PlanBuilder::load_boundary(uint32_t b, uint32_t j, uint32_t wanted_by) {
  const uint32_t i = add(OpKind::load_boundary, Lane::h2d, {backward_slot(b), 0.5f, static_cast<float>(j)});
  op(i).block = static_cast<int32_t>(b);
  op(i).micro = static_cast<int32_t>(j);
  op(i).bytes = options_.host_boundary_bytes;
  depend(i, static_cast<int32_t>(saved_[b][j]), 0);
  depend(wanted_by, static_cast<int32_t>(i), 0);
  use(wanted_by, acquire(i, Ring::boundary_back));
}

}  // namespace sluice::offload
