#include "gpu/half_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace sluice::gpu::math {
namespace {

float value_of(uint16_t half) {  // by the format's definition
  const int exponent = (half >> 10) & 31, fraction = half & 1023;
  const float magnitude = exponent == 31  ? fraction == 0 ? HUGE_VALF : std::nanf("")
                          : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                          : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(HalfMath, EveryHalfIsExactAndComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = half_to_float(half);
    if (std::isnan(value_of(half))) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_EQ(to_half(value), (half & 0x8000) | 0x7e00) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(value_of(half))) << bits;
      ASSERT_EQ(to_half(value), half);
    }
  }
}

TEST(HalfMath, WhatLiesBetweenTwoHalvesGoesToTheNearestAndTiesToTheEvenOne) {
  for (uint16_t half = 0; half < 0x7c00; ++half) {
    const float low = value_of(half), high = half == 0x7bff ? 65536.0f : value_of(half + 1);  // overflow begins half way to 65536
    const float middle = low + (high - low) / 2;
    const auto above = static_cast<uint16_t>(half + 1);
    for (const float sign : {1.0f, -1.0f}) {
      const uint16_t bit = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(to_half(sign * middle), ((half & 1) == 0 ? half : above) | bit) << low;
      ASSERT_EQ(to_half(sign * std::nextafter(middle, 0.0f)), half | bit) << low;
      ASSERT_EQ(to_half(sign * std::nextafter(middle, HUGE_VALF)), above | bit) << low;
    }
  }
  EXPECT_EQ(to_half(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(to_half(-HUGE_VALF), 0xfc00);
}

}  // namespace
}  // namespace sluice::gpu::math
