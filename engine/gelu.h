// GELU by its tanh formula, as GPT-2 and Gemma have it; in fp32, rounded once.
#pragma once
#include <ATen/core/Tensor.h>

namespace sluice::engine {

at::Tensor tanh_gelu(const at::Tensor& x);

}  // namespace sluice::engine
