#include "engine/outliers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace sluice::engine {
namespace {

TEST(Outliers, AJumpStandsOutAndNoiseDoesNot) {
  OutlierWatch watch("loss");
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(-0.1, 0.1);
  for (int i = 0; i < 300; ++i) EXPECT_FALSE(watch.add(3 - 0.001 * i + noise(random))) << i;
  const auto message = watch.add(6);
  ASSERT_TRUE(message);
  EXPECT_NE(message->find("loss 6 stands out"), std::string::npos) << *message;
  EXPECT_FALSE(watch.add(2.7));
  EXPECT_FALSE(watch.add(0));  // below is good news
}

TEST(Outliers, TooFewValuesEqualOnesAndNotFiniteOnesSayNothing) {
  OutlierWatch watch("grad_norm");
  for (size_t i = 0; i + 1 < OutlierWatch::kLeast; ++i) EXPECT_FALSE(watch.add(1));
  EXPECT_FALSE(watch.add(100));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(watch.add(1));
  EXPECT_FALSE(watch.add(1.5));  // no spread to measure with
  EXPECT_FALSE(watch.add(std::nan("")));
}

TEST(EvalWatch, TwoRisesInARowAreToldWithTheBest) {
  EvalWatch watch;
  EXPECT_FALSE(watch.add(10, 3.0));
  EXPECT_FALSE(watch.add(20, 2.5));
  EXPECT_FALSE(watch.add(30, 2.6));
  EXPECT_FALSE(watch.add(40, 2.55));
  EXPECT_FALSE(watch.add(50, 2.6));
  const auto message = watch.add(60, 2.7);
  ASSERT_TRUE(message);
  EXPECT_NE(message->find("2.5000 after step 20"), std::string::npos) << *message;
}

}  // namespace
}  // namespace sluice::engine
