#include "engine/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "engine/cpu_dispatch.h"

namespace sluice::engine {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kAddGrain = 32768;
// Elements of a product before it is added: the temporary stays small and in cache, the matmul keeps its
// speed.
constexpr int64_t kProduct = 4 << 20;
constexpr int64_t kCudaProduct = 16 << 20;

at::Tensor rows_of(const at::Tensor& t) {
  return t.reshape({-1, t.size(-1)});
}

at::Tensor multiplied(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias, bool in_out) {
  if (!in_out) return at::linear(x, weight, bias);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(1);
  return at::addmm(*bias, rows_of(x), weight).view(sizes);
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const GradientSlotPtr& slot,
                            const GradientSlotPtr& bias_slot, bool in_out) {
    ctx->save_for_backward({x, weight});
    save_slot(ctx, "grad", slot);
    save_slot(ctx, "bias_grad", bias_slot);
    ctx->saved_data["in_out"] = in_out;
    return multiplied(x, weight, bias, in_out);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor grad_y = rows_of(grads[0]);
    at::Tensor grad_x;
    const bool in_out = ctx->saved_data["in_out"].toBool();
    if (ctx->needs_input_grad(0)) grad_x = at::mm(grad_y, in_out ? weight.t() : weight).view(x.sizes());
    const at::Tensor grad = saved_gradient(ctx, "grad");
    if (grad.defined()) in_out ? add_weight_grad(rows_of(x), grad_y, grad) : add_weight_grad(grad_y, rows_of(x), grad);
    const at::Tensor bias_grad = saved_gradient(ctx, "bias_grad");
    if (bias_grad.defined()) bias_grad.add_(at::sum(grad_y, {0}, false, at::kFloat));
    return {grad_x, {}, {}, {}, {}, {}};
  }
};

}  // namespace

void add_weight_grad(const at::Tensor& grad_y, const at::Tensor& x, const at::Tensor& grad) {
  if (x.scalar_type() == at::kFloat) {
    at::Tensor sum = grad;
    at::addmm_out(sum, grad, grad_y.t(), x);
    return;
  }
  const bool cuda = x.is_cuda();  // its products come out in fp32, unrounded
  const int64_t out = grad.size(0), in = grad.size(1);
  const int64_t step = std::min(out, std::max<int64_t>(64, (cuda ? kCudaProduct : kProduct) / in / 64 * 64));
  const at::Tensor buffer = at::empty({step, in}, cuda ? grad.options() : x.options());
  for (int64_t first = 0; first < out; first += step) {
    const int64_t rows = std::min(step, out - first);
    at::Tensor product = buffer.narrow(0, 0, rows);
    if (cuda) {
      at::mm_out(product, grad_y.narrow(1, first, rows).t(), x, at::kFloat);
      grad.narrow(0, first, rows).add_(product);
      continue;
    }
    at::mm_out(product, grad_y.narrow(1, first, rows).t(), x);
    const gpu::cpu::Element type = element_type(product);
    const void* values = product.const_data_ptr();
    float* sum = grad.data_ptr<float>() + first * in;
    parallel_pieces(rows * in, kAddGrain, [&](int64_t begin, int64_t end) {
      gpu::cpu::add_to_fp32(type, values, sum, begin, end);
    });
  }
}

at::Tensor linear(const at::Tensor& x, const Parameter& weight, const Parameter* bias) {
  std::optional<at::Tensor> bias_value;
  if (bias) bias_value = bias->value;
  return LinearFunction::apply(x, weight.value, bias_value, weight.slot,
                               bias ? bias->slot : GradientSlotPtr(), /*in_out=*/false);
}

at::Tensor conv1d(const at::Tensor& x, const Parameter& weight, const Parameter& bias) {
  return LinearFunction::apply(x, weight.value, std::optional<at::Tensor>(bias.value), weight.slot, bias.slot, /*in_out=*/true);
}

}  // namespace sluice::engine
