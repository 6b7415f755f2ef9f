// The contract of Comm and Control: what every implementation must do. Link comm_suite.cc and instantiate the suite with a Kind.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "rank_bodies.h"

namespace sluice::comm {

struct Kind {
  std::string name;
  std::function<std::vector<Outcome>(int world, const std::string& body)> run;
  bool processes = true;  // a rank can be killed
  int most_ranks = 1 << 10;
};
inline void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class CommSuite : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (!can_run(1)) GTEST_SKIP() << "no device";
  }
  bool can_run(int world) const { return world <= GetParam().most_ranks; }
  std::vector<Outcome> run(int world, const std::string& body) {
    const auto start = std::chrono::steady_clock::now();
    auto outcomes = GetParam().run(world, body);
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return outcomes;
  }
  void expect_all_good(int world, const std::string& body) {
    if (!can_run(world)) return;
    const auto outcomes = run(world, body);
    for (size_t r = 0; r < outcomes.size(); ++r) {
      EXPECT_EQ(outcomes[r].code, 0) << "rank " << r << " of " << world;
      EXPECT_EQ(outcomes[r].text, "");
    }
  }
  // The others end with exit code 9, in time, and name the last rank and what it says.
  Outcome expect_told(int world, const std::string& body, const std::string& reason) {
    const auto outcomes = run(world, body);
    for (size_t r = 0; r + 1 < outcomes.size(); ++r) {
      EXPECT_EQ(outcomes[r].code, 9) << "rank " << r << ": " << outcomes[r].text;
      EXPECT_THAT(outcomes[r].text, testing::HasSubstr(fmt::format("rank {}: ", world - 1)));
      EXPECT_THAT(outcomes[r].text, testing::HasSubstr(reason));
    }
    EXPECT_LT(seconds_, kDeadline + kSlack);
    return outcomes.back();
  }
  double seconds_ = 0;
};

}  // namespace sluice::comm
