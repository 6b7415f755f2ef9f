#include "engine/loss_head.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/cpu_dispatch.h"
#include "engine/layer_norm.h"
#include "engine/linear.h"
#include "engine/rms_norm.h"
#include "engine/tensor_math.h"

namespace sluice::engine {
namespace {

constexpr int64_t kIgnored = -100;

struct Normed {
  at::Tensor y, stats;
};

Normed normalize(const LossHead& head, const at::Tensor& x) {
  if (head.norm_bias.defined()) {
    LayerNormedRows normed = layer_norm_rows(x, head.norm, head.norm_bias, head.eps);
    return {std::move(normed.y), std::move(normed.stats)};
  }
  NormedRows normed = rms_norm_rows(x, head.norm, head.eps);
  return {std::move(normed.y), std::move(normed.rstd)};
}

void normalize_grad(const LossHead& head, const at::Tensor& x, const at::Tensor& stats, const at::Tensor& grad_y, const at::Tensor& grad_x) {
  if (head.norm_bias.defined())
    return layer_norm_rows_grad(x, head.norm, stats, grad_y, grad_x, head.norm_grad, head.norm_bias_grad);
  rms_norm_rows_grad(x, head.norm, stats, grad_y, grad_x, head.norm_grad);
}

// Turns logits into their gradient (with_grads) and fills the losses of the rows; an ignored row has neither.
void cross_entropy(const at::Tensor& logits, const int64_t* targets, float scale, bool with_grads,
                   double* losses) {
  const gpu::cpu::Element type = element_type(logits);
  const int64_t cols = logits.size(1), row_bytes = cols * logits.element_size();
  auto* data = static_cast<std::byte*>(logits.data_ptr());
  parallel_pieces(logits.size(0), 1, [&](int64_t row, int64_t) {
    losses[row] = 0;
    if (targets[row] == kIgnored) {
      if (with_grads) std::fill_n(data + row * row_bytes, row_bytes, std::byte{0});
      return;
    }
    losses[row] =
        gpu::cpu::cross_entropy_row(type, data + row * row_bytes, cols, targets[row], with_grads, scale);
  });
}

bool any_trained(const int64_t* targets, int64_t count, int64_t vocab) {
  bool any = false;
  for (int64_t i = 0; i < count; ++i) {
    if (targets[i] == kIgnored) continue;
    SLUICE_CHECK(targets[i] >= 0 && targets[i] < vocab, "target outside the vocabulary");
    any = true;
  }
  return any;
}

// Nothing here may look at the values: the device is far behind. So a chunk without a target is computed like any other.
LossHeadResult cuda_loss_head(const LossHead& head, const at::Tensor& x, const at::Tensor& targets, double scale, bool with_grads) {
  const int64_t width = head.matrix.size(1), tokens = targets.numel();
  const at::Tensor rows = x.view({tokens, width}), ids = targets.reshape({-1});
  LossHeadResult result{at::zeros({}, x.options().dtype(at::kDouble)), {}};
  if (with_grads) result.grad_input = at::empty_like(x);
  for (int64_t first = 0; first < tokens; first += head.chunk) {
    const int64_t count = std::min(head.chunk, tokens - first);
    const at::Tensor x_chunk = rows.narrow(0, first, count);
    const Normed normed = normalize(head, x_chunk);
    const bool fp32 = x.scalar_type() == at::kFloat;
    const at::Tensor logits = fp32 ? at::mm(normed.y, head.matrix.t()) : at::mm(normed.y, head.matrix.t(), at::kFloat);
    result.loss_sum.add_(tensor_math::cross_entropy(logits, ids.narrow(0, first, count), scale, with_grads));
    if (!with_grads) continue;
    const at::Tensor grad_logits = logits.to(x.scalar_type());
    if (head.matrix_grad.defined()) add_weight_grad(grad_logits, normed.y, head.matrix_grad);
    normalize_grad(head, x_chunk, normed.stats, at::mm(grad_logits, head.matrix),
                   result.grad_input.view({tokens, width}).narrow(0, first, count));
  }
  return result;
}

}  // namespace

LossHeadResult loss_head(const LossHead& head, const at::Tensor& x, const at::Tensor& targets, double scale,
                         bool with_grads) {
  const at::NoGradGuard no_grad;
  if (x.is_cuda()) return cuda_loss_head(head, x, targets, scale, with_grads);
  const at::Tensor& matrix = head.matrix;
  const int64_t vocab = matrix.size(0), width = matrix.size(1), tokens = targets.numel();
  const at::Tensor rows = x.view({tokens, width}), ids = targets.contiguous();
  LossHeadResult result{at::zeros({}, x.options().dtype(at::kDouble)), {}};
  auto& loss_sum = *result.loss_sum.data_ptr<double>();
  if (with_grads) result.grad_input = at::empty_like(x);
  const at::Tensor grad_rows = with_grads ? result.grad_input.view({tokens, width}) : at::Tensor();
  const at::Tensor buffer = at::empty({std::min(tokens, head.chunk), vocab}, x.options());
  std::vector<double> losses(static_cast<size_t>(std::min(tokens, head.chunk)));
  for (int64_t first = 0; first < tokens; first += head.chunk) {
    const int64_t count = std::min(head.chunk, tokens - first);
    const auto* target = ids.const_data_ptr<int64_t>() + first;
    at::Tensor grad_chunk = with_grads ? grad_rows.narrow(0, first, count) : at::Tensor();
    if (!any_trained(target, count, vocab)) {
      if (with_grads) grad_chunk.zero_();
      continue;
    }
    const at::Tensor x_chunk = rows.narrow(0, first, count);
    const Normed normed = normalize(head, x_chunk);
    at::Tensor logits = buffer.narrow(0, 0, count);
    at::mm_out(logits, normed.y, matrix.t());
    cross_entropy(logits, target, static_cast<float>(scale), with_grads, losses.data());
    for (int64_t i = 0; i < count; ++i) loss_sum += losses[static_cast<size_t>(i)];
    if (!with_grads) continue;
    if (head.matrix_grad.defined()) add_weight_grad(logits, normed.y, head.matrix_grad);
    normalize_grad(head, x_chunk, normed.stats, at::mm(logits, matrix), grad_chunk);
  }
  return result;
}

}  // namespace sluice::engine
