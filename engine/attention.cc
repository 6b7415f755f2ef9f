#include "engine/attention.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <cmath>

#include "engine/attention_bf16.h"

namespace sluice::engine {
namespace {

using gpu::cpu::AttentionTile;
using gpu::cpu::Element;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void load(const HeadView& from, int64_t first, int64_t rows, int64_t cols, float scale, float* to) {
  gpu::cpu::load_rows(from.type, from.at(first), from.stride, to, rows, cols, scale);
}

void store(const float* from, const float* row_scale, const HeadView& to, int64_t first, int64_t rows,
           int64_t cols) {
  gpu::cpu::store_rows(to.type, from, row_scale, to.at(first), to.stride, rows, cols);
}

at::Tensor matrix(float* data, int64_t rows, int64_t cols) {
  return at::from_blob(data, {rows, cols}, at::TensorOptions().dtype(at::kFloat));
}

// scores = (q * scale) k^T for one tile.
AttentionTile score(const QueryTile& t, const HeadView& q, const AttentionPlan& plan, float* k, float* q_tile,
                    float* scores) {
  load(q, t.first_query, t.rows(), plan.shape.head_dim, plan.scale, q_tile);
  at::Tensor out = matrix(scores, t.rows(), t.keys());
  at::mm_out(out, matrix(q_tile, t.rows(), plan.shape.head_dim),
             matrix(k, t.keys(), plan.shape.head_dim).t());
  return tile_of(t, scores);
}

// log_sum_exp: fp32 [B, heads, T].
at::Tensor forward_tiles(const AttentionPlan& plan, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& log_sum_exp) {
  const int64_t dim = plan.shape.head_dim, group = plan.shape.heads / plan.shape.kv_heads;
  at::Tensor out = at::empty(q.sizes(), q.options());
  if (has_bf16_attention(q.scalar_type(), dim)) {
    forward_bf16(plan, {q, k, v}, out, log_sum_exp);
    return out;
  }
  const int64_t words = attention_scratch(plan.tokens, dim, plan.longest, false).forward;
  for_each_item(plan, words, q.options(), [&](const AttentionItem& item, float* scratch) {
    const WorkPart& part = part_of(plan, item);
    float *keys = scratch, *values = keys + plan.tokens * dim, *q_tile = values + plan.tokens * dim;
    float *out_tile = q_tile + kAttentionQueries * dim, *inverse_sum = out_tile + kAttentionQueries * dim,
          *scores = inverse_sum + kAttentionQueries;
    float* lse = log_sum_exp.data_ptr<float>() + (item.row * plan.shape.heads + item.head) * plan.tokens;
    const HeadView q_head = head_view(q, plan, item.row, item.head),
                   out_head = head_view(out, plan, item.row, item.head);
    load(head_view(k, plan, item.row, item.head / group), part.first_key, part.end - part.first_key, dim, 1,
         keys);
    load(head_view(v, plan, item.row, item.head / group), part.first_key, part.end - part.first_key, dim, 1,
         values);
    for (const QueryTile& t : part.tiles) {
      const int64_t offset = (t.first_key - part.first_key) * dim;
      const AttentionTile tile = score(t, q_head, plan, keys + offset, q_tile, scores);
      gpu::cpu::attention_softmax(tile, inverse_sum, lse + t.first_query);
      drop(plan, item, t, tile);
      at::Tensor product = matrix(out_tile, t.rows(), dim);
      at::mm_out(product, matrix(scores, t.rows(), t.keys()), matrix(values + offset, t.keys(), dim));
      store(out_tile, inverse_sum, out_head, t.first_query, t.rows(), dim);
    }
  });
  return out;
}

struct Grads {
  at::Tensor q, k, v;
};

// Gradients of keys and values of one (row, head, part), fp32 [2][T][head_dim]; only the part's keys are
// written.
at::Tensor partial_grads(const AttentionPlan& plan, const at::TensorOptions& like) {
  return at::empty({plan.batch, plan.shape.heads, plan.parts, 2, plan.tokens, plan.shape.head_dim},
                   like.dtype(at::kFloat));
}

void backward_tiles(const AttentionPlan& plan, const variable_list& saved, const at::Tensor& grad_out,
                    const at::Tensor& grad_q, const at::Tensor& partial) {
  const int64_t dim = plan.shape.head_dim, group = plan.shape.heads / plan.shape.kv_heads,
                block = plan.tokens * dim;
  if (has_bf16_attention(grad_q.scalar_type(), dim)) return backward_bf16(plan, {saved[0], saved[1], saved[2]}, saved[3], grad_out, grad_q, partial);
  const int64_t words = attention_scratch(plan.tokens, dim, plan.longest, false).backward;
  for_each_item(plan, words, grad_q.options(), [&](const AttentionItem& item, float* scratch) {
    const WorkPart& part = part_of(plan, item);
    float *keys = scratch, *values = keys + block, *q_tile = values + block, *do_tile = q_tile + kAttentionQueries * dim;
    float *dq_tile = do_tile + kAttentionQueries * dim, *p = dq_tile + kAttentionQueries * dim, *ds = p + kAttentionQueries * plan.longest;
    const int64_t pair = item.row * plan.shape.heads + item.head;
    float *dk = partial.data_ptr<float>() + (pair * plan.parts + item.part) * 2 * block, *dv = dk + block;
    clear_partial(plan, part, dk);
    const float* lse = saved[3].const_data_ptr<float>() + pair * plan.tokens;
    const HeadView q_head = head_view(saved[0], plan, item.row, item.head);
    const HeadView do_head = head_view(grad_out, plan, item.row, item.head),
                   dq_head = head_view(grad_q, plan, item.row, item.head);
    load(head_view(saved[1], plan, item.row, item.head / group), part.first_key, part.end - part.first_key,
         dim, 1, keys);
    load(head_view(saved[2], plan, item.row, item.head / group), part.first_key, part.end - part.first_key,
         dim, 1, values);
    for (const QueryTile& t : part.tiles) {
      const int64_t offset = (t.first_key - part.first_key) * dim, rows = t.rows();
      load(do_head, t.first_query, rows, dim, 1, do_tile);
      const AttentionTile tile = score(t, q_head, plan, keys + offset, q_tile, p);
      const at::Tensor d_out = matrix(do_tile, rows, dim), probabilities = matrix(p, rows, t.keys());
      at::Tensor d_scores = matrix(ds, rows, t.keys()), d_query = matrix(dq_tile, rows, dim);
      at::mm_out(d_scores, d_out, matrix(values + offset, t.keys(), dim).t());
      drop(plan, item, t, tile_of(t, ds));
      gpu::cpu::attention_softmax_grad(tile, lse + t.first_query, ds);
      drop(plan, item, t, tile);  // the values met the kept probabilities only
      at::mm_out(d_query, d_scores, matrix(keys + offset, t.keys(), dim));
      gpu::cpu::load_rows(Element::fp32, dq_tile, dim, dq_tile, rows, dim, plan.scale);
      store(dq_tile, nullptr, dq_head, t.first_query, rows, dim);
      at::Tensor d_keys = matrix(dk + t.first_key * dim, t.keys(), dim),
                 d_values = matrix(dv + t.first_key * dim, t.keys(), dim);
      at::addmm_out(d_keys, d_keys, d_scores.t(), matrix(q_tile, rows, dim));
      at::addmm_out(d_values, d_values, probabilities.t(), d_out);
    }
  });
}

// Sums the query heads of each group and their parts in fixed order, and rounds once.
void reduce_grads(const AttentionPlan& plan, const at::Tensor& partial, const at::Tensor& grad_k,
                  const at::Tensor& grad_v) {
  const int64_t dim = plan.shape.head_dim, group = plan.shape.heads / plan.shape.kv_heads,
                block = plan.tokens * dim;
  float* data = partial.data_ptr<float>();
  at::parallel_for(0, plan.batch * plan.shape.kv_heads * 2, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / 2 / plan.shape.kv_heads, kv = i / 2 % plan.shape.kv_heads, which = i % 2;
      const int64_t first_pair = row * plan.shape.heads + kv * group;
      const auto& parts = plan.rows[static_cast<size_t>(row)];
      const auto sums_of = [&](int64_t head, int64_t p) {
        return data + (((first_pair + head) * plan.parts + p) * 2 + which) * block;
      };
      // The last part with tiles reaches the row's end; keys before its first one are another part's alone.
      float* total = sums_of(0, plan.parts - 1);
      if (parts.back().tiles.empty()) std::fill_n(total, block, 0.0f);
      if (!parts.back().tiles.empty()) std::fill_n(total, parts.back().first_key * dim, 0.0f);
      for (int64_t head = 0; head < group; ++head) {
        for (int64_t p = 0; p < plan.parts; ++p) {
          const WorkPart& part = parts[static_cast<size_t>(p)];
          if (part.tiles.empty() || sums_of(head, p) == total) continue;
          gpu::cpu::add_to_fp32(Element::fp32, sums_of(head, p), total, part.first_key * dim, part.end * dim);
        }
      }
      store(total, nullptr, head_view(which ? grad_v : grad_k, plan, row, kv), 0, plan.tokens, dim);
    }
  });
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const c10::intrusive_ptr<AttentionPlan>& plan) {
    const at::Tensor lse =
        at::empty({plan->batch, plan->shape.heads, plan->tokens}, q.options().dtype(at::kFloat));
    at::Tensor out = forward_tiles(*plan, q, k, v, lse);
    ctx->save_for_backward({q, k, v, lse});
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto plan = c10::static_intrusive_pointer_cast<AttentionPlan>(ctx->saved_data["plan"].toCapsule());
    const at::Tensor grad_q = at::empty_like(saved[0]), grad_k = at::empty_like(saved[1]),
                     grad_v = at::empty_like(saved[2]);
    const at::Tensor partial = partial_grads(*plan, grad_q.options());
    backward_tiles(*plan, saved, grads[0].contiguous(), grad_q, partial);
    reduce_grads(*plan, partial, grad_k, grad_v);
    return {grad_q, grad_k, grad_v, {}};
  }
};

struct PackedAttentionFunction : torch::autograd::Function<PackedAttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv, const c10::intrusive_ptr<AttentionPlan>& plan) {
    const at::Tensor lse =
        at::empty({plan->batch, plan->shape.heads, plan->tokens}, qkv.options().dtype(at::kFloat));
    const auto [q, k, v] = split_inputs(qkv, plan->shape);
    at::Tensor out = forward_tiles(*plan, q, k, v, lse);
    ctx->save_for_backward({qkv, lse});
    ctx->saved_data["plan"] = c10::IValue::make_capsule(plan);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto plan = c10::static_intrusive_pointer_cast<AttentionPlan>(ctx->saved_data["plan"].toCapsule());
    const auto [q, k, v] = split_inputs(saved[0], plan->shape);
    const at::Tensor grad = at::empty_like(saved[0]);
    const auto [grad_q, grad_k, grad_v] = split_inputs(grad, plan->shape);
    const at::Tensor partial = partial_grads(*plan, grad.options());
    backward_tiles(*plan, {q, k, v, saved[1]}, grads[0].contiguous(), grad_q, partial);
    reduce_grads(*plan, partial, grad_k, grad_v);
    return {grad, {}};
  }
};

c10::intrusive_ptr<AttentionPlan> make_plan(int64_t batch, int64_t tokens, const AttentionShape& shape,
                                   const std::vector<std::vector<int32_t>>& pieces, const gpu::cpu::Dropout& dropout) {
  auto plan = c10::make_intrusive<AttentionPlan>();
  plan->shape = shape;
  plan->batch = batch;
  plan->tokens = tokens;
  plan->dropout = dropout;
  plan->parts = plan->batch * shape.heads < kFewHeads ? 2 : 1;
  plan->scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_dim)));
  SLUICE_CHECK(static_cast<int64_t>(pieces.size()) == plan->batch, "one list of pieces a row");
  plan->rows = attention_parts(pieces, plan->tokens, kAttentionQueries, plan->parts);
  for (const auto& row : plan->rows) {
    for (const WorkPart& part : row) {
      for (const QueryTile& t : part.tiles) plan->longest = std::max(plan->longest, t.keys());
    }
  }
  return plan;
}

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionShape& shape, const std::vector<std::vector<int32_t>>& pieces,
                     const gpu::cpu::Dropout& dropout) {
  return AttentionFunction::apply(q, k, v, make_plan(q.size(0), q.size(1), shape, pieces, dropout));
}

at::Tensor packed_attention(const at::Tensor& qkv, const AttentionShape& shape,
                            const std::vector<std::vector<int32_t>>& pieces, const gpu::cpu::Dropout& dropout) {
  return PackedAttentionFunction::apply(qkv, make_plan(qkv.size(0), qkv.size(1), shape, pieces, dropout));
}

AttentionInputs split_inputs(const at::Tensor& qkv, const AttentionShape& shape) {
  const int64_t queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
  return {qkv.narrow(2, 0, queries), qkv.narrow(2, queries, keys), qkv.narrow(2, queries + keys, keys)};
}

}  // namespace sluice::engine
