// IEEE half precision bits, without branches, so that loops over them become vector code. Plain C++17, for nvcc and the host.
#pragma once
#include "gpu/float_bits.h"

namespace sluice::gpu::math {

// Exact. The multiplication by 2^112 moves the exponent and makes subnormals normal.
SLUICE_HOST_DEVICE float half_to_float(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t bits = to_bits(mul(from_bits(magnitude << 13), from_bits(0x77800000u)));
  const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;  // infinity, NaN
  return from_bits(bits | special | (static_cast<uint32_t>(half & 0x8000u) << 16));
}

// To nearest even; overflow gives infinity, a NaN the quiet NaN 0x7E00 with its sign.
SLUICE_HOST_DEVICE uint16_t to_half(float value) {
  const uint32_t bits = to_bits(value), magnitude = bits & 0x7fffffffu;
  const uint32_t rebiased = magnitude - (112u << 23);
  const uint32_t normal = (rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13;
  // Below 2^-14 in units of 2^-24, which is the last place of a float in [0.5, 1): adding 0.5 rounds.
  const uint32_t subnormal = to_bits(add(from_bits(magnitude), 0.5f)) - 0x3f000000u;
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x47800000u ? 0x7c00u : half;  // 65536 and above; what rounds up to it has become 0x7C00 already
  half = magnitude > 0x7f800000u ? 0x7e00u : half;
  return static_cast<uint16_t>(half | ((bits >> 16) & 0x8000u));
}

}  // namespace sluice::gpu::math
