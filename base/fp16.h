// IEEE half precision bit patterns. (_Float16 is not C++ in every compiler we build with.)
#pragma once
#include <bit>
#include <cstdint>

namespace sluice::base {

// Exact. The multiplication by 2^112 moves the exponent and makes subnormals normal.
constexpr float fp16_to_float(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7fffu;
  const auto wide = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
  const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;  // infinity, NaN
  return std::bit_cast<float>(wide | special | (static_cast<uint32_t>(bits & 0x8000u) << 16));
}

// Round to nearest even; what rounds to 65536 or more becomes infinity, a NaN the quiet NaN 0x7E00 with its sign.
constexpr uint16_t float_to_fp16(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = u & 0x7fffffffu, rebiased = magnitude - (112u << 23);
  uint32_t half = (rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13;
  // Below 2^-14 in units of 2^-24, which is the last place of a float in [0.5, 1): adding 0.5 rounds.
  if (magnitude < 0x38800000u) half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  if (magnitude >= 0x47800000u) half = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return static_cast<uint16_t>(half | ((u >> 16) & 0x8000u));
}

}  // namespace sluice::base
