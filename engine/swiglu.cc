#include "engine/swiglu.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "engine/cpu_dispatch.h"
#include "engine/tensor_math.h"

namespace sluice::engine {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrain = 8192;

struct SwiGluFunction : torch::autograd::Function<SwiGluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate, const at::Tensor& up) {
    ctx->save_for_backward({gate, up});
    if (gate.is_cuda()) return tensor_math::swiglu(gate, up);
    at::Tensor out = at::empty_like(gate);
    const gpu::cpu::SwiGlu op{element_type(gate), gate.const_data_ptr(), up.const_data_ptr(), out.data_ptr()};
    parallel_pieces(gate.numel(), kGrain,
                    [&](int64_t begin, int64_t end) { gpu::cpu::swiglu(op, begin, end); });
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1];
    if (gate.is_cuda()) {
      const tensor_math::SwiGluGrads both = tensor_math::swiglu_grad(gate, up, grads[0]);
      return {both.gate, both.up};
    }
    const at::Tensor grad_out = grads[0].contiguous();
    const at::Tensor grad_gate = at::empty_like(gate), grad_up = at::empty_like(up);
    const gpu::cpu::SwiGluGrad op{element_type(gate),        gate.const_data_ptr(), up.const_data_ptr(),
                                  grad_out.const_data_ptr(), grad_gate.data_ptr(),  grad_up.data_ptr()};
    parallel_pieces(gate.numel(), kGrain,
                    [&](int64_t begin, int64_t end) { gpu::cpu::swiglu_grad(op, begin, end); });
    return {grad_gate, grad_up};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return SwiGluFunction::apply(gate, up);
}

}  // namespace sluice::engine
