#include "engine/flops.h"

namespace sluice::engine {

using offload::OpKind;

namespace {

// Scores and their product with the values, of all heads.
double attention(const StepFlops& f) {
  return 2 * f.tokens() * static_cast<double>(f.sequence) *
         static_cast<double>(f.config.heads * f.config.head_dim);
}

}  // namespace

double StepFlops::layer_forward(uint32_t block) const {
  const auto& place = layout.blocks()[block];
  return 2 * tokens() * static_cast<double>(place.trainable + place.frozen) + attention(*this);
}

double StepFlops::layer_backward(uint32_t block, bool again) const {
  const auto& place = layout.blocks()[block];
  const bool below = block > layout.lowest_trainable_block().value_or(0);
  const double inputs = below ? 2 * tokens() * static_cast<double>(place.trainable + place.frozen) : 0;
  const double weights = 2 * tokens() * static_cast<double>(place.trainable);
  return (again ? layer_forward(block) : 0) + inputs + weights +
         2.5 * attention(*this);  // five products instead of two
}

double StepFlops::loss(bool training) const {
  const double product =
      2 * tokens() * static_cast<double>(config.vocab) * static_cast<double>(config.hidden);
  const bool weights =
      layout.tied() ? layout.blocks().front().tensors.front().trainable : layout.blocks().back().tensors.back().trainable;
  return product * (training ? weights ? 3 : 2 : 1);
}

double StepFlops::of(const offload::Op& op) const {
  const auto block = static_cast<uint32_t>(op.block),
             head = static_cast<uint32_t>(layout.blocks().size() - 1);
  switch (op.kind) {
    case OpKind::forward:
      return block == 0 ? 0 : layer_forward(block);
    case OpKind::backward:
      return block == 0 ? 0 : layer_backward(block, block + keep_graphs < head);
    case OpKind::loss:
      return loss(true);
    default:
      return 0;
  }
}

}  // namespace sluice::engine
