// Root-mean-square norm over the last dimension: fp32 inside, rounded to the compute type, then times the
// weight.
#pragma once
#include "engine/parameter.h"

namespace sluice::engine {

at::Tensor rms_norm(const at::Tensor& x, const Parameter& weight, double eps);

// The same without autograd, on rows [n, cols]. `rstd` is fp32 [n].
struct NormedRows {
  at::Tensor y;
  at::Tensor rstd;
};
NormedRows rms_norm_rows(const at::Tensor& x, const at::Tensor& weight, double eps);

// Writes the input's gradient to `grad_x` and adds the weight's to `grad_weight`; each may be undefined: not
// wanted. The weight's gradient is summed in fp32 over pieces of 32 rows, then over the pieces in order: the
// bits do not depend on threads.
void rms_norm_rows_grad(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                        const at::Tensor& grad_y, const at::Tensor& grad_x, const at::Tensor& grad_weight);

}  // namespace sluice::engine
