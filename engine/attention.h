// Causal attention with grouped heads inside document pieces, by matrix products over query tiles.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "gpu/cpu_kernels.h"

namespace sluice::engine {

struct AttentionShape {
  int64_t heads, kv_heads, head_dim;
};

// q [B, T, heads * head_dim], k, v [B, T, kv_heads * head_dim] -> [B, T, heads * head_dim]. pieces: per row
// the starts of its documents, first 0, ascending; a query sees the keys of its own piece up to itself.
// Scores, softmax and all sums are in fp32, the result is rounded once. Memory: O(tile * T) a thread, never T
// * T. Bits do not depend on threads. dropout: of the probabilities; its rows are the queries of (row, head) in turn, its
// columns the tokens of the row.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionShape& shape, const std::vector<std::vector<int32_t>>& pieces,
                     const gpu::cpu::Dropout& dropout = {});

// The same of one tensor [B, T, (heads + 2 kv_heads) * head_dim] that holds q, k and v side by side; nothing is copied.
at::Tensor packed_attention(const at::Tensor& qkv, const AttentionShape& shape,
                            const std::vector<std::vector<int32_t>>& pieces, const gpu::cpu::Dropout& dropout = {});

// q, k and v of such a tensor, as views.
struct AttentionInputs {
  at::Tensor q, k, v;
};
AttentionInputs split_inputs(const at::Tensor& qkv, const AttentionShape& shape);

}  // namespace sluice::engine
