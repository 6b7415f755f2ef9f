#include "engine/tensor_math.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <mutex>

namespace sluice::engine::tensor_math {
namespace {

constexpr int64_t kIgnored = -100;

at::Tensor fp32(const at::Tensor& t) { return t.to(at::kFloat); }

// Sorts by index and adds in order: the same bits in every run, unlike index_add's atomics.
void add_at(const at::Tensor& target, const c10::List<std::optional<at::Tensor>>& indices, const at::Tensor& values) {
  at::Tensor sum = target;
  at::index_put_(sum, indices, values, /*accumulate=*/true);
}

}  // namespace

NormedRows rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = fp32(x);
  const at::Tensor rstd = at::rsqrt((wide * wide).mean({1}) + eps);
  return {(wide * rstd.unsqueeze(1)).to(x.scalar_type()) * weight, rstd};
}

void rms_norm_grad(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& grad_y,
                   const at::Tensor& grad_x, const at::Tensor& grad_weight) {
  const at::Tensor normal = fp32(x) * rstd.unsqueeze(1), dy = fp32(grad_y);
  if (grad_weight.defined()) grad_weight.add_((dy * fp32(normal.to(x.scalar_type()))).sum({0}));
  if (!grad_x.defined()) return;
  const at::Tensor g = dy * fp32(weight);
  const at::Tensor mean = (g * normal).mean({1}, /*keepdim=*/true);
  grad_x.copy_((g - normal * mean) * rstd.unsqueeze(1));
}

at::Tensor rotate(const at::Tensor& x, int64_t head_dim, const at::Tensor& positions, const at::Tensor& cos, const at::Tensor& sin,
                  bool inverse) {
  const int64_t rows = x.size(0) * x.size(1), half = head_dim / 2;
  const auto halves = [&](const at::Tensor& t) { return t.view({rows, -1, 2, half}); };
  const auto angles = [&](const at::Tensor& table) { return at::index_select(table, 0, positions.reshape({-1})).unsqueeze(1); };
  const at::Tensor c = angles(cos), s = inverse ? -angles(sin) : angles(sin);
  const at::Tensor a = fp32(halves(x).select(2, 0)), b = fp32(halves(x).select(2, 1));
  const at::Tensor y = at::empty_like(x);
  halves(y).select(2, 0).copy_(a * c - b * s);
  halves(y).select(2, 1).copy_(b * c + a * s);
  return y;
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor g = fp32(gate);
  return (g * at::sigmoid(g) * fp32(up)).to(gate.scalar_type());
}

SwiGluGrads swiglu_grad(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& grad_out) {
  const at::Tensor g = fp32(gate), dy = fp32(grad_out), s = at::sigmoid(g);
  const at::Tensor slope = s * (g * (1 - s) + 1);  // d silu(g) / dg
  return {(dy * fp32(up) * slope).to(gate.scalar_type()), (dy * (g * s)).to(up.scalar_type())};
}

LayerNormedRows layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  const at::Tensor wide = fp32(x), mean = wide.mean({1});
  const at::Tensor centered = wide - mean.unsqueeze(1);
  const at::Tensor rstd = at::rsqrt((centered * centered).mean({1}) + eps);
  return {(centered * rstd.unsqueeze(1) * fp32(weight) + fp32(bias)).to(x.scalar_type()), at::stack({mean, rstd}, 1)};
}

void layer_norm_grad(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& stats, const at::Tensor& grad_y,
                     const at::Tensor& grad_x, const at::Tensor& grad_weight, const at::Tensor& grad_bias) {
  const at::Tensor rstd = stats.narrow(1, 1, 1), dy = fp32(grad_y);
  const at::Tensor normal = (fp32(x) - stats.narrow(1, 0, 1)) * rstd;
  if (grad_weight.defined()) grad_weight.add_((dy * normal).sum({0}));
  if (grad_bias.defined()) grad_bias.add_(dy.sum({0}));
  if (!grad_x.defined()) return;
  const at::Tensor g = dy * fp32(weight);
  const at::Tensor mean = g.mean({1}, /*keepdim=*/true), mean_dot = (g * normal).mean({1}, /*keepdim=*/true);
  grad_x.copy_((g - mean - normal * mean_dot) * rstd);
}

namespace {
constexpr double kTwoC = 1.5957691216057308, kA = 0.044715;  // 2 sqrt(2 / pi): half of 1 + tanh(u) is sigmoid(2 u)

at::Tensor gelu_gate(const at::Tensor& x) { return at::sigmoid(x * (x * x * kA + 1) * kTwoC); }
}  // namespace

at::Tensor gelu(const at::Tensor& x) {
  const at::Tensor wide = fp32(x);
  return (wide * gelu_gate(wide)).to(x.scalar_type());
}

at::Tensor gelu_grad(const at::Tensor& x, const at::Tensor& grad_out) {
  const at::Tensor wide = fp32(x), gate = gelu_gate(wide);
  const at::Tensor slope = gate * (wide * (1 - gate) * (wide * wide * (3 * kA) + 1) * kTwoC + 1);
  return (fp32(grad_out) * slope).to(x.scalar_type());
}

void seed_generator(const at::Device& device, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

at::Tensor dropped(const at::Tensor& x, const gpu::cpu::Dropout& dropout) {
  at::Tensor mask = at::empty(x.sizes(), x.options().dtype(at::kFloat));
  seed_generator(x.device(), dropout.key);
  mask.bernoulli_(1 - static_cast<double>(dropout.threshold) * 0x1p-32);
  return (fp32(x) * mask.mul_(dropout.scale)).to(x.scalar_type());
}

void add_rows(const at::Tensor& rows, const at::Tensor& tokens, std::optional<int64_t> pad, const at::Tensor& grad) {
  at::Tensor values = fp32(rows);
  if (pad) values = values.masked_fill((tokens == *pad).unsqueeze(1), 0);
  add_at(grad, {tokens}, values);
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, double scale, bool with_grads) {
  const at::Tensor trained = targets != kIgnored, target = targets.clamp_min(0);
  const at::Tensor lse = at::logsumexp(logits, {1});
  const at::Tensor losses = lse - logits.gather(1, target.unsqueeze(1)).squeeze(1);
  const at::Tensor sum = at::where(trained, losses, at::zeros_like(losses)).sum(at::kDouble);
  if (!with_grads) return sum;
  at::Tensor grad = logits;
  grad.sub_(lse.unsqueeze(1)).exp_();
  const at::Tensor rows = at::arange(logits.size(0), target.options());
  add_at(grad, {rows, target}, at::full({logits.size(0)}, -1, logits.options()));
  grad.mul_(scale).masked_fill_(trained.logical_not().unsqueeze(1), 0);
  return sum;
}

}  // namespace sluice::engine::tensor_math
