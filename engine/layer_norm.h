// LayerNorm over the last dimension: fp32 inside, rounded once.
#pragma once
#include "engine/parameter.h"

namespace sluice::engine {

at::Tensor layer_norm(const at::Tensor& x, const Parameter& weight, const Parameter& bias, double eps);

// The same without autograd, on rows [n, cols]. `stats` is fp32 [n, 2]: mean and reciprocal deviation.
struct LayerNormedRows {
  at::Tensor y, stats;
};
LayerNormedRows layer_norm_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);

// Writes the input's gradient to `grad_x` and adds the parameters' to `grad_weight` and `grad_bias`; each may be undefined: not
// wanted. Sums are made as rms_norm_rows_grad's are.
void layer_norm_rows_grad(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& stats, const at::Tensor& grad_y,
                          const at::Tensor& grad_x, const at::Tensor& grad_weight, const at::Tensor& grad_bias);

}  // namespace sluice::engine
