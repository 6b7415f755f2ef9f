// Amounts as they are printed.
#include "apps/amounts.h"

#include <gtest/gtest.h>

namespace sluice::apps {
namespace {

TEST(Amounts, AreDecimal) {
  EXPECT_EQ(decimal_bytes(0), "0 B");
  EXPECT_EQ(decimal_bytes(1500), "1.5 kB");
  EXPECT_EQ(decimal_bytes(1e6), "1.0 MB");
  EXPECT_EQ(decimal_bytes(6.5e9), "6.50 GB");
  EXPECT_EQ(decimal_bytes(1.2e15), "1200.00 TB");
  EXPECT_EQ(parameter_count(134'515'008), "135 M");
  EXPECT_EQ(parameter_count(8.03e9), "8.03 B");
  EXPECT_EQ(parameter_count(1.7e12), "1.7 T");
}

}  // namespace
}  // namespace sluice::apps
