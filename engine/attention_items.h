// What the ways to compute attention on the CPU share: the plan of a call, its items of parallel work, views of heads. Internal to attention.
#pragma once
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "engine/attention.h"
#include "engine/attention_scratch.h"
#include "engine/attention_tiles.h"
#include "engine/cpu_dispatch.h"

namespace sluice::engine {

// What forward and backward of one call share.
struct AttentionPlan : torch::CustomClassHolder {
  AttentionShape shape;
  int64_t batch = 0, tokens = 0, parts = 1, longest = 0;  // longest: keys of a tile
  float scale = 1;
  gpu::cpu::Dropout dropout;
  std::vector<std::vector<WorkPart>> rows;
};

// One thread's work at a time: the tiles of a part of one row and head.
struct AttentionItem {
  int64_t row, head, part;
};

// A strided matrix of the compute type inside a [B, T, n * head_dim] tensor, which may be a part of a wider one: one head of
// one row.
struct HeadView {
  gpu::cpu::Element type;
  std::byte* data;
  int64_t stride;  // elements between tokens
  int64_t element;
  void* at(int64_t token) const { return data + token * stride * element; }
};

inline HeadView head_view(const at::Tensor& t, const AttentionPlan& plan, int64_t row, int64_t head) {
  const int64_t stride = t.stride(1), element = t.element_size();
  auto* base = static_cast<std::byte*>(const_cast<void*>(t.const_data_ptr()));
  return {element_type(t), base + (row * plan.tokens * stride + head * plan.shape.head_dim) * element, stride,
          element};
}

// Calls body(item, scratch) for every item; threads take the next one when they are done. Every item writes
// only memory of its own, so the order does not matter. Scratch is one allocation of the calling thread, so
// that it is charged to its device.
template <class Body>
void for_each_item(const AttentionPlan& plan, int64_t scratch_floats, const at::TensorOptions& like,
                   const Body& body) {
  const int64_t items = plan.batch * plan.shape.heads * plan.parts;
  const int64_t threads = std::min<int64_t>(items, at::get_num_threads());
  const at::Tensor scratch = at::empty({threads, scratch_floats}, like.dtype(at::kFloat));
  std::atomic<int64_t> next{0};
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (int64_t thread = begin; thread < end; ++thread) {
      for (int64_t i = next++; i < items; i = next++) {
        const int64_t pair = i / plan.parts;
        body(AttentionItem{pair / plan.shape.heads, pair % plan.shape.heads, i % plan.parts},
             scratch.data_ptr<float>() + thread * scratch_floats);
      }
    }
  });
}

inline const WorkPart& part_of(const AttentionPlan& plan, const AttentionItem& item) {
  return plan.rows[static_cast<size_t>(item.row)][static_cast<size_t>(item.part)];
}

inline gpu::cpu::AttentionTile tile_of(const QueryTile& t, float* scores) {
  return {t.rows(), t.keys(), t.keys(), t.first_query - t.first_key + 1, scores};
}

inline void drop(const AttentionPlan& plan, const AttentionItem& item, const QueryTile& t, const gpu::cpu::AttentionTile& tile) {
  if (!plan.dropout.active()) return;
  const int64_t pair = item.row * plan.shape.heads + item.head;
  gpu::cpu::attention_dropout(tile, plan.dropout, static_cast<uint64_t>(pair * plan.tokens + t.first_query), t.first_key);
}

// Gradients of keys and values of an item, fp32 [2][T][head_dim]: the keys of its part, set to zero.
inline void clear_partial(const AttentionPlan& plan, const WorkPart& part, float* grads) {
  const int64_t dim = plan.shape.head_dim;
  for (float* sum : {grads, grads + plan.tokens * dim}) std::fill_n(sum + part.first_key * dim, (part.end - part.first_key) * dim, 0.0f);
}

}  // namespace sluice::engine
