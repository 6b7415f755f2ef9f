#include "base/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace sluice::base {
namespace {

void expect_exact(uint32_t u) {
  const float x = std::bit_cast<float>(u);
  const SplitFloat s = split(x);
  const auto back = std::bit_cast<uint32_t>(join(s.hi, s.lo));
  ASSERT_EQ(back, std::isnan(x) ? 0x7fc00000u : u) << std::hex << u;
}

TEST(Split, IsExactOnAStrideOfAllPatterns) {
  for (uint64_t u = 0; u < (1ull << 32); u += 65521) expect_exact(static_cast<uint32_t>(u));
  for (uint32_t u : {0u, 0x80000000u, 0x7f800000u, 0xff800000u, 0x7f7fffffu, 0x00000001u, 0x7fffffffu, 0x3f808000u}) expect_exact(u);
}

TEST(Split, SlowIsExactOnAllPatterns) {
  for (uint64_t u = 0; u < (1ull << 32); ++u) expect_exact(static_cast<uint32_t>(u));
}

TEST(Split, HiOfANaNIsANaN) {
  const SplitFloat s = split(std::bit_cast<float>(0x7fffffffu));
  EXPECT_TRUE(std::isnan(bf16_to_float(s.hi)));
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace sluice::base
