#include "base/link.h"

#include <gtest/gtest.h>

namespace sluice::base {
namespace {

double between(Link::Clock::time_point a, Link::Clock::time_point b) { return std::chrono::duration<double>(b - a).count(); }

TEST(Link, TransfersShareItOneAfterTheOther) {
  Link link(1e6);
  const auto first = link.reserve(1e6), second = link.reserve(5e5);
  EXPECT_NEAR(between(Link::Clock::now(), first), 1.0, 0.1);
  EXPECT_NEAR(between(first, second), 0.5, 1e-6);
}

TEST(Link, WithoutALimitNothingTakesTime) {
  Link link(0);
  EXPECT_FALSE(link.limited());
  const auto end = link.reserve(1e18);
  EXPECT_LE(end, Link::Clock::now());
  link.pass(1e18);
}

TEST(Link, PassingTakesTheTime) {
  Link link(1e6);
  const auto begin = Link::Clock::now();
  link.pass(2e4);
  EXPECT_GE(between(begin, Link::Clock::now()), 0.02);
}

}  // namespace
}  // namespace sluice::base
