// Attention by the processor's bf16 products (gpu/cpu_products.h): half the time of fp32 ones. Probabilities and the gradients of scores are
// rounded to bf16 where they are factors; scores, softmax and sums stay fp32. Internal to attention.
#pragma once
#include <ATen/core/Tensor.h>

#include "engine/attention_items.h"

namespace sluice::engine {

// Does this processor compute heads of this type and size so?
bool has_bf16_attention(at::ScalarType type, int64_t head_dim);

// As in attention.cc. log_sum_exp: fp32 [B, heads, T]; partial: fp32 [B, heads, parts][2][T][head_dim], of which a part's keys are written.
void forward_bf16(const AttentionPlan& plan, const AttentionInputs& in, const at::Tensor& out, const at::Tensor& log_sum_exp);
void backward_bf16(const AttentionPlan& plan, const AttentionInputs& in, const at::Tensor& log_sum_exp, const at::Tensor& grad_out,
                   const at::Tensor& grad_q, const at::Tensor& partial);

}  // namespace sluice::engine
