// sluice plan --sweep: what it takes, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/run_fixture.h"

namespace sluice::apps {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class SweepTest : public RunFixture {
 protected:
  static Words sweep(const Words& sweeps, const Words& more = {}) {
    Words words{"plan", "config.json", "--machine", "rtx4090-64g"};
    for (const std::string& argument : sweeps) words.insert(words.end(), {"--sweep", argument});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<Words> sets(const Words& sweeps) const {
    const ProgramResult r = run(sweep(sweeps, {"--json"}));
    EXPECT_EQ(r.status, 0) << r.err;
    std::vector<Words> found;
    const json document = json::parse(r.out);
    for (const json& row : document.at("sweep")) {
      EXPECT_FALSE(row.contains("error")) << row;
      found.push_back(row.at("set"));
    }
    return found;
  }
};

// The shell takes quotes away.
TEST_F(SweepTest, ListsTakeBareWords) {
  const std::vector<Words> both{{"execution.overlap=none"}, {"execution.overlap=forward"}};
  EXPECT_EQ(sets({"execution.overlap=[none,forward]"}), both);
  EXPECT_EQ(sets({"execution.overlap=[none, \"forward\"]"}), both);
  EXPECT_EQ(sets({"execution.overlap=[\"none\",\"forward\"]"}), both);
  EXPECT_EQ(sets({"execution.overlap=none", "execution.overlap=forward"}), both);
  EXPECT_EQ(sets({"memory.host=[40MiB,48MiB]"}), (std::vector<Words>{{"memory.host=40MiB"}, {"memory.host=48MiB"}}));
  EXPECT_EQ(sets({"optimizer.params.betas=[[0.9,0.95],[0.8,0.9]]"}),
            (std::vector<Words>{{"optimizer.params.betas=[0.9,0.95]"}, {"optimizer.params.betas=[0.8,0.9]"}}));
}

TEST_F(SweepTest, WhatCannotBeSweptIsRefused) {
  expect_refused(sweep({"execution.overlop=none"}), 2, {"--sweep: unknown key \"execution.overlop\"", "execution.overlap"});
  expect_refused(sweep({"execution.overlap=[]"}), 2, {"--sweep execution.overlap=[]", "the list is empty"});
  expect_refused(sweep({"execution.overlap=[none,]"}), 2, {"--sweep execution.overlap=[none,]", "empty"});
  expect_refused(sweep({"=3"}), 2, {"--sweep =3", "write key=value"});
}

// One bad value of several is a row that says so; with no other rows there is nothing to compare.
TEST_F(SweepTest, ABadValueIsNamedAsTheSweeps) {
  const ProgramResult some = run(sweep({"data.sequence_length=[64,1]"}));
  EXPECT_EQ(some.status, 0) << some.err;
  EXPECT_THAT(some.out, HasSubstr("--sweep: data.sequence_length = 1: not allowed"));
  const ProgramResult none = run(sweep({"execution.overlap=[sideways]"}));
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.out, HasSubstr("--sweep: execution.overlap = \"sideways\": not allowed"));
  EXPECT_THAT(none.err, HasSubstr("--sweep: none of the 1 rows can be planned"));
}

}  // namespace
}  // namespace sluice::apps
