// The types in which gradients cross to their owner. Plain C++17: CUDA sources include it too.
#pragma once
#include <cstddef>

namespace sluice::gpu {

enum class WireType { bf16, fp32 };
constexpr size_t wire_bytes(WireType type) { return type == WireType::bf16 ? 2 : 4; }

}  // namespace sluice::gpu
