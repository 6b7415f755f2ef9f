#include "engine/gelu.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "engine/cpu_dispatch.h"
#include "engine/tensor_math.h"

namespace sluice::engine {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrain = 8192;

struct GeluFunction : torch::autograd::Function<GeluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    if (x.is_cuda()) return tensor_math::gelu(x);
    at::Tensor out = at::empty_like(x);
    const gpu::cpu::Gelu op{element_type(x), x.const_data_ptr(), out.data_ptr()};
    parallel_pieces(x.numel(), kGrain, [&](int64_t begin, int64_t end) { gpu::cpu::gelu(op, begin, end); });
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    if (x.is_cuda()) return {tensor_math::gelu_grad(x, grads[0])};
    const at::Tensor grad_out = grads[0].contiguous(), grad_x = at::empty_like(x);
    const gpu::cpu::GeluGrad op{element_type(x), x.const_data_ptr(), grad_out.const_data_ptr(), grad_x.data_ptr()};
    parallel_pieces(x.numel(), kGrain, [&](int64_t begin, int64_t end) { gpu::cpu::gelu_grad(op, begin, end); });
    return {grad_x};
  }
};

}  // namespace

at::Tensor tanh_gelu(const at::Tensor& x) {
  return GeluFunction::apply(x);
}

}  // namespace sluice::engine
