#include "engine/fused_attention.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/attention_bf16.h"
#include "engine/document_groups.h"
#include "engine/tensor_math.h"

namespace sluice::engine {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kCausal = 1;  // of the efficient kernel: a query sees the keys of its piece up to itself

struct Plan : torch::CustomClassHolder {
  AttentionShape shape;
  double scale = 1;
  gpu::cpu::Dropout dropout;
  double dropped() const { return static_cast<double>(dropout.threshold) * 0x1p-32; }  // probability
  std::vector<DocumentGroup> groups;
};

// What a call keeps for its backward, beside its part of q, k and v.
struct Kept {
  at::Tensor out, log_sum_exp, seed, offset;
};
constexpr size_t kKept = 4;

// One group's rows of [B, T, heads * head_dim], which may be a part of a wider tensor, as [tokens, heads, head_dim].
at::Tensor part(const at::Tensor& t, const DocumentGroup& group, int64_t head_dim) {
  return t.view({t.size(0) * t.size(1), -1, head_dim}).narrow(0, group.first_token, group.tokens);
}

at::Tensor starts_of(const at::Tensor& starts, const DocumentGroup& group) {
  return starts.narrow(0, group.first_start, group.pieces + 1);
}

// A bound on the lengths. With 1 the flash kernel would take another path, whose log-sum-exp its own backward does not read.
int64_t flash_bound(const DocumentGroup& group) { return std::max<int64_t>(2, group.longest); }

Kept flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& starts,
                   const DocumentGroup& group, const Plan& plan) {
  auto [out, log_sum_exp, seed, offset, debug] = at::_flash_attention_forward(q, k, v, starts, starts, flash_bound(group), flash_bound(group),
                                                                             plan.dropped(), /*is_causal=*/true,
                                                                             /*return_debug_mask=*/false, plan.scale);
  return {out, log_sum_exp, seed, offset};
}

std::array<at::Tensor, 3> flash_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                         const Kept& kept, const at::Tensor& starts, const DocumentGroup& group, const Plan& plan) {
  auto [dq, dk, dv] =
      at::_flash_attention_backward(grad_out, q, k, v, kept.out, kept.log_sum_exp, starts, starts, flash_bound(group), flash_bound(group),
                                    plan.dropped(), /*is_causal=*/true, kept.seed, kept.offset, plan.scale);
  return {dq, dk, dv};
}

// The efficient kernel knows no grouped heads: keys and values are repeated, and their gradients summed.
at::Tensor repeat_heads(const at::Tensor& t, int64_t group) {
  if (group == 1) return t.unsqueeze(0);
  return t.unsqueeze(2).expand({t.size(0), t.size(1), group, t.size(2)}).reshape({1, t.size(0), t.size(1) * group, t.size(2)});
}

at::Tensor sum_heads(const at::Tensor& t, int64_t group) {
  if (group == 1) return t.squeeze(0);
  return t.view({t.size(1), t.size(2) / group, group, t.size(3)}).sum({2});
}

Kept efficient_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& starts,
                       const DocumentGroup& group, const Plan& plan) {
  const int64_t repeat = plan.shape.heads / plan.shape.kv_heads;
  auto [out, log_sum_exp, seed, offset, max_q, max_k] = at::_efficient_attention_forward(
      q.unsqueeze(0), repeat_heads(k, repeat), repeat_heads(v, repeat), /*bias=*/{}, starts, starts, group.longest, group.longest,
      plan.dropped(), kCausal, /*compute_log_sumexp=*/true, plan.scale);
  return {out.squeeze(0), log_sum_exp, seed, offset};
}

// One split over the keys: more would add their parts in any order.
std::array<at::Tensor, 3> efficient_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                                             const at::Tensor& v, const Kept& kept, const at::Tensor& starts,
                                             const DocumentGroup& group, const Plan& plan) {
  const int64_t repeat = plan.shape.heads / plan.shape.kv_heads;
  auto [dq, dk, dv, dbias] = at::_efficient_attention_backward(
      grad_out.unsqueeze(0), q.unsqueeze(0), repeat_heads(k, repeat), repeat_heads(v, repeat), /*bias=*/{}, kept.out.unsqueeze(0),
      starts, starts, group.longest, group.longest, kept.log_sum_exp, plan.dropped(), kept.seed, kept.offset, kCausal,
      /*bias_requires_grad=*/false, plan.scale, /*num_splits_key=*/1);
  return {dq.squeeze(0), sum_heads(dk, repeat), sum_heads(dv, repeat)};
}

bool uses_flash(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }
bool uses_flash(const at::Tensor& q) { return uses_flash(q.scalar_type()); }

// The output; adds what each group keeps for its backward to `saved`.
at::Tensor forward_groups(const Plan& plan, const AttentionInputs& in, const at::Tensor& starts, variable_list& saved) {
  const int64_t dim = plan.shape.head_dim;
  at::Tensor out;
  if (plan.dropout.active()) tensor_math::seed_generator(in.q.device(), plan.dropout.key);
  for (const DocumentGroup& group : plan.groups) {
    const at::Tensor begins = starts_of(starts, group);
    const at::Tensor q = part(in.q, group, dim), k = part(in.k, group, dim), v = part(in.v, group, dim);
    const Kept kept = uses_flash(q) ? flash_forward(q, k, v, begins, group, plan) : efficient_forward(q, k, v, begins, group, plan);
    if (plan.groups.size() == 1) {
      out = kept.out.view(in.q.sizes());
    } else {
      if (!out.defined()) out = at::empty(in.q.sizes(), in.q.options());
      part(out, group, dim).copy_(kept.out);
    }
    saved.insert(saved.end(), {kept.out, kept.log_sum_exp, kept.seed, kept.offset});
  }
  return out;
}

// kept: of the first group, with the others after it.
void backward_groups(const Plan& plan, const AttentionInputs& in, const at::Tensor& starts, const at::Tensor* kept, const at::Tensor& grad_out,
                     const AttentionInputs& grads) {
  const int64_t dim = plan.shape.head_dim;
  for (const DocumentGroup& group : plan.groups) {
    const Kept one{kept[0], kept[1], kept[2], kept[3]};
    kept += kKept;
    const at::Tensor begins = starts_of(starts, group);
    const at::Tensor go = part(grad_out, group, dim), q = part(in.q, group, dim), k = part(in.k, group, dim), v = part(in.v, group, dim);
    const auto [dq, dk, dv] = uses_flash(q) ? flash_backward(go, q, k, v, one, begins, group, plan)
                                            : efficient_backward(go, q, k, v, one, begins, group, plan);
    part(grads.q, group, dim).copy_(dq);
    part(grads.k, group, dim).copy_(dk);
    part(grads.v, group, dim).copy_(dv);
  }
}

struct FusedAttention : torch::autograd::Function<FusedAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& starts, const c10::intrusive_ptr<Plan>& plan) {
    variable_list saved = {q, k, v, starts};
    at::Tensor out = forward_groups(*plan, {q, k, v}, starts, saved);
    ctx->save_for_backward(saved);
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto plan = c10::static_intrusive_pointer_cast<Plan>(ctx->saved_data["plan"].toCapsule());
    const AttentionInputs in{saved[0], saved[1], saved[2]};
    const AttentionInputs out{at::empty_like(in.q), at::empty_like(in.k), at::empty_like(in.v)};
    backward_groups(*plan, in, saved[3], &saved[4], grads[0].contiguous(), out);
    return {out.q, out.k, out.v, {}, {}};
  }
};

struct FusedPackedAttention : torch::autograd::Function<FusedPackedAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv, const at::Tensor& starts, const c10::intrusive_ptr<Plan>& plan) {
    variable_list saved = {qkv, starts};
    at::Tensor out = forward_groups(*plan, split_inputs(qkv, plan->shape), starts, saved);
    ctx->save_for_backward(saved);
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto plan = c10::static_intrusive_pointer_cast<Plan>(ctx->saved_data["plan"].toCapsule());
    const at::Tensor grad = at::empty_like(saved[0]);
    backward_groups(*plan, split_inputs(saved[0], plan->shape), saved[1], &saved[2], grads[0].contiguous(), split_inputs(grad, plan->shape));
    return {grad, {}, {}};
  }
};

c10::intrusive_ptr<Plan> make_plan(int64_t rows, int64_t tokens, const AttentionShape& shape, const std::vector<std::vector<int32_t>>& pieces,
                                   const at::Tensor& starts, const gpu::cpu::Dropout& dropout) {
  SLUICE_CHECK(static_cast<int64_t>(pieces.size()) == rows, "one list of pieces a row");
  SLUICE_CHECK(starts.defined() && starts.scalar_type() == at::kInt, "document starts on the device");
  auto plan = c10::make_intrusive<Plan>();
  plan->shape = shape;
  plan->scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  plan->dropout = dropout;
  plan->groups = document_groups(pieces, tokens);
  return plan;
}

}  // namespace

at::Tensor fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape,
                           const std::vector<std::vector<int32_t>>& pieces, const at::Tensor& starts, const gpu::cpu::Dropout& dropout) {
  return FusedAttention::apply(q, k, v, starts, make_plan(q.size(0), q.size(1), shape, pieces, starts, dropout));
}

at::Tensor fused_packed_attention(const at::Tensor& qkv, const AttentionShape& shape, const std::vector<std::vector<int32_t>>& pieces,
                                  const at::Tensor& starts, const gpu::cpu::Dropout& dropout) {
  return FusedPackedAttention::apply(qkv, starts, make_plan(qkv.size(0), qkv.size(1), shape, pieces, starts, dropout));
}

std::string attention_kernel(const at::Device& device, at::ScalarType type, int64_t head_dim) {
  if (!device.is_cuda()) return has_bf16_attention(type, head_dim) ? "query tiles and the processor's bf16 products" : "query tiles";
  const bool flash = uses_flash(type);
  if (head_dim % 8 != 0 || (flash && head_dim > 256))
    base::fail(base::ErrorKind::config,
               "no fused attention kernel of CUDA takes heads of {} elements{}. Take machine.device \"cpu\"", head_dim,
               flash ? " in 16 bits (a multiple of 8, at most 256)" : " (a multiple of 8)");
  return flash ? "flash, variable length" : "memory-efficient, variable length";
}

}  // namespace sluice::engine
