#include "base/budget.h"

#include <gtest/gtest.h>

#include <utility>

namespace sluice::base {
namespace {

TEST(Budget, ChargesAndGivesBack) {
  Budget budget("device", 100, ErrorKind::device_memory);
  {
    Reservation a = budget.reserve("weights", 60);
    Reservation b = std::move(a);
    EXPECT_EQ(budget.used(), 60u);
    EXPECT_EQ(budget.used_by_purpose().at("weights"), 60u);
  }
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_EQ(budget.peak(), 60u);
}

TEST(Budget, OneByteTooManyIsAnErrorOfItsKindThatNamesThePurpose) {
  Budget budget("device", 100, ErrorKind::device_memory);
  const Reservation a = budget.reserve("weights", 60);
  try {
    (void)budget.reserve("gradients", 41);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device_memory);
    EXPECT_NE(std::string(error.what()).find("gradients"), std::string::npos);
  }
  EXPECT_EQ(budget.used(), 60u);
  (void)budget.reserve("gradients", 40);
}

}  // namespace
}  // namespace sluice::base
