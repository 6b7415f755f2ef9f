// Causal attention on a GPU by LibTorch's fused kernels, called by name: no dispatch could fall back to the T x T math path.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/attention.h"

namespace sluice::engine {

// As attention(), with the document starts on the device (write_document_starts, int32). bf16 and fp16: the flash kernel; fp32: the
// memory-efficient one. Both in their variable-length form, whether documents are packed or not. The masks of a dropout are the
// kernel's own, by LibTorch's generator seeded with the key: other masks than the CPU's, the same in every run.
at::Tensor fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape,
                           const std::vector<std::vector<int32_t>>& pieces, const at::Tensor& starts,
                           const gpu::cpu::Dropout& dropout = {});

// As packed_attention().
at::Tensor fused_packed_attention(const at::Tensor& qkv, const AttentionShape& shape, const std::vector<std::vector<int32_t>>& pieces,
                                  const at::Tensor& starts, const gpu::cpu::Dropout& dropout = {});

// The name, for the start banner, of the kernel that these heads get on a device. Error(config) when no fused one takes them.
std::string attention_kernel(const at::Device& device, at::ScalarType type, int64_t head_dim);

}  // namespace sluice::engine
