#include "base/fp16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice::base {
namespace {

TEST(Fp16, AgreesWithTheFormat) {
  EXPECT_EQ(fp16_to_float(0x3c00), 1.0f);
  EXPECT_EQ(fp16_to_float(0xc000), -2.0f);
  EXPECT_EQ(fp16_to_float(0x7bff), 65504.0f);
  EXPECT_EQ(fp16_to_float(0x0001), 0x1p-24f);
  EXPECT_EQ(fp16_to_float(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(fp16_to_float(0x7c01)));
  EXPECT_EQ(std::bit_cast<uint32_t>(fp16_to_float(0x8000)), 0x80000000u);
}

TEST(Fp16, RoundsToNearestEven) {
  EXPECT_EQ(float_to_fp16(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_fp16(-1e9f), 0xfc00);
  EXPECT_EQ(float_to_fp16(0x1p-25f), 0x0000);
  EXPECT_EQ(float_to_fp16(0x1.000002p-25f), 0x0001);
  EXPECT_EQ(float_to_fp16(0x1.8p-24f), 0x0002);
  EXPECT_EQ(float_to_fp16(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(float_to_fp16(1.0f + 0x3p-11f), 0x3c02);
  EXPECT_EQ(float_to_fp16(std::bit_cast<float>(0x7fc00000u)), 0x7e00);
  EXPECT_EQ(float_to_fp16(std::bit_cast<float>(0xff800001u)), 0xfe00);
}

TEST(Fp16, EveryPatternComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = fp16_to_float(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) {
      ASSERT_EQ(float_to_fp16(value), bits);
    }
  }
}

}  // namespace
}  // namespace sluice::base
