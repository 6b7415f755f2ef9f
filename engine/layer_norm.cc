#include "engine/layer_norm.h"

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

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const GradientSlotPtr& slot, const GradientSlotPtr& bias_slot, double eps) {
    const LayerNormedRows normed = layer_norm_rows(x.view({-1, x.size(-1)}), weight, bias, eps);
    ctx->save_for_backward({x, weight, normed.stats});
    save_slot(ctx, "grad", slot);
    save_slot(ctx, "bias_grad", bias_slot);
    return normed.y.view(x.sizes());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor grad_y = grads[0].contiguous();
    const at::Tensor grad_x = ctx->needs_input_grad(0) ? at::empty_like(x) : at::Tensor();
    const at::Tensor rows = grad_x.defined() ? grad_x.view({-1, x.size(-1)}) : at::Tensor();
    layer_norm_rows_grad(x.view({-1, x.size(-1)}), saved[1], saved[2], grad_y.view({-1, x.size(-1)}), rows,
                         saved_gradient(ctx, "grad"), saved_gradient(ctx, "bias_grad"));
    return {grad_x, {}, {}, {}, {}, {}};
  }
};

// Adds the sums of all pieces, [pieces][cols], to `grad`, in order.
void add_pieces(float* sums, int64_t pieces, int64_t cols, const at::Tensor& grad) {
  using gpu::cpu::Element;
  for (int64_t i = 1; i < pieces; ++i) gpu::cpu::add_to_fp32(Element::fp32, sums + i * cols, sums, 0, cols);
  gpu::cpu::add_to_fp32(Element::fp32, sums, grad.data_ptr<float>(), 0, cols);
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const Parameter& weight, const Parameter& bias, double eps) {
  return LayerNormFunction::apply(x, weight.value, bias.value, weight.slot, bias.slot, eps);
}

LayerNormedRows layer_norm_rows(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  if (x.is_cuda()) {
    const tensor_math::LayerNormedRows normed = tensor_math::layer_norm(x, weight, bias, eps);
    return {normed.y, normed.stats};
  }
  const int64_t rows = x.size(0);
  LayerNormedRows out{at::empty_like(x), at::empty({rows, 2}, x.options().dtype(at::kFloat))};
  const gpu::cpu::LayerNorm op{element_type(x),        x.size(1),       static_cast<float>(eps),
                               x.const_data_ptr(),     weight.const_data_ptr(), bias.const_data_ptr(),
                               out.y.data_ptr(),       out.stats.data_ptr<float>()};
  parallel_pieces(rows, kRows, [&](int64_t begin, int64_t end) { gpu::cpu::layer_norm(op, begin, end); });
  return out;
}

void layer_norm_rows_grad(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& stats, const at::Tensor& grad_y,
                          const at::Tensor& grad_x, const at::Tensor& grad_weight, const at::Tensor& grad_bias) {
  if (x.is_cuda()) return tensor_math::layer_norm_grad(x, weight, stats, grad_y, grad_x, grad_weight, grad_bias);
  const int64_t rows = x.size(0), cols = x.size(1), pieces = (rows + kRows - 1) / kRows;
  const auto partial = [&](const at::Tensor& grad) {
    return grad.defined() ? at::empty({pieces, cols}, x.options().dtype(at::kFloat)) : at::Tensor();
  };
  const at::Tensor weight_sums = partial(grad_weight), bias_sums = partial(grad_bias);
  const auto at_piece = [&](const at::Tensor& sums, int64_t piece) {
    return sums.defined() ? sums.data_ptr<float>() + piece * cols : nullptr;
  };
  const gpu::cpu::LayerNormGrad op{element_type(x),
                                   cols,
                                   x.const_data_ptr(),
                                   weight.const_data_ptr(),
                                   stats.const_data_ptr<float>(),
                                   grad_y.const_data_ptr(),
                                   grad_x.defined() ? grad_x.data_ptr() : nullptr,
                                   nullptr,
                                   nullptr};
  parallel_pieces(rows, kRows, [&](int64_t begin, int64_t end) {
    gpu::cpu::LayerNormGrad piece = op;
    piece.grad_weight = at_piece(weight_sums, begin / kRows);
    piece.grad_bias = at_piece(bias_sums, begin / kRows);
    gpu::cpu::layer_norm_grad(piece, begin, end);
  });
  if (grad_weight.defined()) add_pieces(weight_sums.data_ptr<float>(), pieces, cols, grad_weight);
  if (grad_bias.defined()) add_pieces(bias_sums.data_ptr<float>(), pieces, cols, grad_bias);
}

}  // namespace sluice::engine
