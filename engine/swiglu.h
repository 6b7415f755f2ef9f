// silu(gate) * up, in fp32, rounded once.
#pragma once
#include <ATen/core/Tensor.h>

namespace sluice::engine {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace sluice::engine
