// y = x W^T (+ bias), or x W + bias, for weights in flat buffers, with fp32 weight gradients.
#pragma once
#include "engine/parameter.h"

namespace sluice::engine {

// x [..., in], weight [out, in]. bias may be null.
at::Tensor linear(const at::Tensor& x, const Parameter& weight, const Parameter* bias);

// y = x W + bias, weight [in, out]: GPT-2's Conv1D.
at::Tensor conv1d(const at::Tensor& x, const Parameter& weight, const Parameter& bias);

// grad += grad_y^T x, in fp32: rows grad_y [n, out], x [n, in]. In bf16 on the CPU each product is rounded once
// to bf16 and then added; on CUDA it is fp32.
void add_weight_grad(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& grad);

}  // namespace sluice::engine
