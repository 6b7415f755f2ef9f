// bfloat16 bit patterns, and the exact fp32 <-> (hi, lo) split of the master weight.
// Source of the split and proof over all 2^32 patterns: docs/design.md, "State".
#pragma once
#include <bit>
#include <cstdint>

namespace sluice::base {

constexpr float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Round to nearest even; a NaN stays a (quiet) NaN.
constexpr uint16_t float_to_bf16(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

// hi = the bf16 compute weight (round half away in magnitude), lo = signed 16-bit remainder. join(split(x)) == x for every
// pattern that is not a NaN; every NaN becomes 0x7FC00000.
struct SplitFloat {
  uint16_t hi;
  int16_t lo;
};
constexpr SplitFloat split(float value) {
  auto u = std::bit_cast<uint32_t>(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) u = 0x7fc00000u;
  return {static_cast<uint16_t>((u + 0x8000u) >> 16), static_cast<int16_t>(u & 0xffffu)};
}
constexpr float join(uint16_t hi, int16_t lo) {
  return std::bit_cast<float>((static_cast<uint32_t>(hi) << 16) + static_cast<uint32_t>(static_cast<int32_t>(lo)));
}

}  // namespace sluice::base
