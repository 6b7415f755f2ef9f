// fp32 to 16 bits on the CPU.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sluice::gpu {

// base::float_to_bf16 and math::to_half (gpu/half_math.h) on each element; the same bits on every CPU. Ranges must not overlap.
void cast_to_bf16(const float* from, uint16_t* to, size_t count);
void cast_to_fp16(const float* from, uint16_t* to, size_t count);

}  // namespace sluice::gpu
