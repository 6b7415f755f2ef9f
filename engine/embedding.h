// Embedding rows by hand: a gather, and its gradient as an fp32 sum in token order.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace sluice::engine {

// matrix [V, H], tokens int64 [B, T] -> [B, T, H].
at::Tensor gather_rows(const at::Tensor& matrix, const at::Tensor& tokens);

// grad[tokens[i]] += grad_output[i], i ascending; rows of `pad` are left out, as transformers' padding_idx
// does.
void add_row_grads(const at::Tensor& grad_output, const at::Tensor& tokens, std::optional<int64_t> pad,
                   const at::Tensor& grad);

}  // namespace sluice::engine
