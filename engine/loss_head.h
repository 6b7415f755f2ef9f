// Final norm, LM head and cross entropy as one operation, a chunk of tokens at a time; never the whole
// logits.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sluice::engine {

struct LossHead {
  at::Tensor norm, norm_bias, matrix;  // [H], [H], [V, H]; a bias makes the norm a LayerNorm, undefined: RMSNorm
  at::Tensor norm_grad, norm_bias_grad, matrix_grad;  // fp32, added to; undefined: not wanted
  double eps;
  int64_t chunk;  // tokens
};

struct LossHeadResult {
  at::Tensor loss_sum;    // a double, on the device; over targets != -100, in an order that is always the same
  at::Tensor grad_input;  // [B, T, H] of loss_sum * scale; undefined without grads
};

// x [B, T, H], targets int64 [B, T]. The gradients are added to only when with_grads.
LossHeadResult loss_head(const LossHead& head, const at::Tensor& x, const at::Tensor& targets, double scale,
                         bool with_grads);

}  // namespace sluice::engine
