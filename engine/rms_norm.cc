#include "engine/rms_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "engine/cpu_dispatch.h"
#include "engine/tensor_math.h"

namespace sluice::engine {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRows = 32;

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const GradientSlotPtr& slot, double eps) {
    const NormedRows normed = rms_norm_rows(x.view({-1, x.size(-1)}), weight, eps);
    ctx->save_for_backward({x, weight, normed.rstd});
    save_slot(ctx, "grad", slot);
    return normed.y.view(x.sizes());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor grad_y = grads[0].contiguous();
    const at::Tensor grad_x = ctx->needs_input_grad(0) ? at::empty_like(x) : at::Tensor();
    const at::Tensor rows = grad_x.defined() ? grad_x.view({-1, x.size(-1)}) : at::Tensor();
    rms_norm_rows_grad(x.view({-1, x.size(-1)}), saved[1], saved[2], grad_y.view({-1, x.size(-1)}), rows,
                       saved_gradient(ctx, "grad"));
    return {grad_x, {}, {}, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const Parameter& weight, double eps) {
  return RmsNormFunction::apply(x, weight.value, weight.slot, eps);
}

NormedRows rms_norm_rows(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (x.is_cuda()) {
    const tensor_math::NormedRows normed = tensor_math::rms_norm(x, weight, eps);
    return {normed.y, normed.rstd};
  }
  const int64_t rows = x.size(0);
  NormedRows out{at::empty_like(x), at::empty({rows}, x.options().dtype(at::kFloat))};
  const gpu::cpu::RmsNorm op{
      element_type(x),         x.size(1),        static_cast<float>(eps),   x.const_data_ptr(),
      weight.const_data_ptr(), out.y.data_ptr(), out.rstd.data_ptr<float>()};
  parallel_pieces(rows, kRows, [&](int64_t begin, int64_t end) { gpu::cpu::rms_norm(op, begin, end); });
  return out;
}

void rms_norm_rows_grad(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                        const at::Tensor& grad_y, const at::Tensor& grad_x, const at::Tensor& grad_weight) {
  if (x.is_cuda()) return tensor_math::rms_norm_grad(x, weight, rstd, grad_y, grad_x, grad_weight);
  const int64_t rows = x.size(0), cols = x.size(1), pieces = (rows + kRows - 1) / kRows;
  at::Tensor partial;
  if (grad_weight.defined()) partial = at::empty({pieces, cols}, x.options().dtype(at::kFloat));
  gpu::cpu::RmsNormGrad op{element_type(x),
                           cols,
                           x.const_data_ptr(),
                           weight.const_data_ptr(),
                           rstd.const_data_ptr<float>(),
                           grad_y.const_data_ptr(),
                           grad_x.defined() ? grad_x.data_ptr() : nullptr,
                           nullptr};
  float* sums = partial.defined() ? partial.data_ptr<float>() : nullptr;
  parallel_pieces(rows, kRows, [&](int64_t begin, int64_t end) {
    gpu::cpu::RmsNormGrad piece = op;
    if (sums) piece.grad_weight = sums + begin / kRows * cols;
    gpu::cpu::rms_norm_grad(piece, begin, end);
  });
  if (!sums) return;
  for (int64_t i = 1; i < pieces; ++i)
    gpu::cpu::add_to_fp32(gpu::cpu::Element::fp32, sums + i * cols, sums, 0, cols);
  gpu::cpu::add_to_fp32(gpu::cpu::Element::fp32, sums, grad_weight.data_ptr<float>(), 0, cols);
}

}  // namespace sluice::engine
