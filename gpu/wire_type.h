// The types in which gradients cross to their owner. Plain C++17: CUDA sources include it too.
#pragma once
#include <cstddef>

namespace sluice::gpu {

enum class WireType { bf16, fp16, fp32 };
constexpr size_t wire_bytes(WireType type) { return type == WireType::fp32 ? 4 : 2; }

}  // namespace sluice::gpu
