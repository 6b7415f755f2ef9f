// Floating-point operations of a step, by formula. LibTorch-free.
#pragma once
#include <cstdint>

#include "engine/hf_config.h"
#include "offload/layout.h"
#include "offload/plan.h"

namespace sluice::engine {

// Two per multiply-add; norms, activations and the embedding's rows are left out. Attention is causal: half
// of the scores. A backward computes its block once more, but for the last keep_graphs layers, then gradients
// of inputs and of trained weights.
struct StepFlops {
  const offload::Layout& layout;
  const HfConfig& config;
  uint64_t micro_batch = 1, sequence = 0;  // rows, tokens of a row
  uint32_t keep_graphs = 0;

  double tokens() const { return static_cast<double>(micro_batch) * static_cast<double>(sequence); }
  double of(const offload::Op& op) const;  // of the compute lane; one micro-batch
  double layer_forward(uint32_t block) const;
  double layer_backward(uint32_t block, bool again) const;
  double loss(bool training) const;
};

}  // namespace sluice::engine
