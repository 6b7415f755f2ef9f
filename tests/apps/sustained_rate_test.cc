#include "apps/sustained_rate.h"

#include <gtest/gtest.h>

namespace sluice::apps {
namespace {

TEST(SustainedRate, AnEvenRateIsBelievedOnceTheFileIsWritten) {
  SustainedRate bench;
  for (int i = 0; i < 10; ++i) bench.add(6e9, 2);
  EXPECT_TRUE(bench.flat);
  EXPECT_FALSE(bench.settled(100e9)) << "a cache may take so much";
  for (int i = 0; i < 10; ++i) bench.add(1e9, 2);
  EXPECT_FALSE(bench.settled(100e9));
  EXPECT_DOUBLE_EQ(bench.rate(), 0.5e9);
  EXPECT_EQ(bench.fast_bytes, 60e9);
  for (int i = 0; i < 60; ++i) bench.add(1e9, 2);
  EXPECT_TRUE(bench.settled(100e9));
  bench.add(2e9, 2);
  EXPECT_FALSE(bench.flat);
}

}  // namespace
}  // namespace sluice::apps
