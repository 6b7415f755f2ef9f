// sluice bench, as people run it, with little time for each part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/apps/run_fixture.h"

namespace sluice::apps {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class BenchTest : public RunFixture {
 protected:
  json bench(const Words& parts) const {
    Words words{"bench", "--seconds", "0.4", "--json"};
    words.insert(words.end(), parts.begin(), parts.end());
    const ProgramResult r = run(words);
    EXPECT_EQ(r.status, 0) << r.err;
    return r.status == 0 ? json::parse(r.out) : json::object();
  }
  static void expect_share(const json& share) {
    EXPECT_GT(share.get<double>(), 0.05);
    EXPECT_LT(share.get<double>(), 5);  // of a fraction of a second on a busy machine
  }
};

TEST_F(BenchTest, EveryPartHasItsRateItsCostAndItsLimit) {
  const json b = bench({"--out", "machine.json"});
  for (const char* way : {"read", "write", "mixed"}) {
    EXPECT_GT(b.at("disk").at(way).at("gb_per_s"), 0) << way;
    EXPECT_GT(b.at("disk").at(way).at("cpu_ms_per_gb"), 0) << way;
  }
  for (const char* way : {"read", "write"}) {
    EXPECT_LE(b.at("disk").at(way).at("fraction_of_best"), 1);
    double best = 0;
    for (const json& cell : b.at("disk").at("cells")) best = std::max(best, cell.at(std::string(way) + "_gb_per_s").get<double>());
    EXPECT_LE(b.at("disk").at(way).at("gb_per_s").get<double>() / b.at("disk").at(way).at("fraction_of_best").get<double>(),
              std::max(best, b.at("disk").at(way).at("gb_per_s").get<double>()) * 1.0001);
  }
  EXPECT_GT(b.at("disk").at("commit_4k_ms").at("p99"), 0);
  EXPECT_GT(b.at("adam").at("params_per_s"), 1e6);
  EXPECT_NEAR(b.at("adam").at("gb_per_s").get<double>(), b.at("adam").at("params_per_s").get<double>() * 26e-9, 1e-3);
  expect_share(b.at("adam").at("fraction_of_stream"));
  expect_share(b.at("adam").at("with_checksums").at("fraction_of_stream"));
  for (const char* way : {"h2d", "d2h"}) expect_share(b.at("copy").at(way).at("fraction_of_memcpy"));
  for (const char* pass : {"read", "write", "copy"}) EXPECT_LE(b.at("memory").at(pass).at("fraction_of_best"), 1);
  expect_share(b.at("compute").at("fraction_of_product"));
  for (const auto& [name, value] : b.at("together").items()) EXPECT_GT(value.at("rate"), 0) << name;

  const json profile = json::parse(read_all(at("machine.json")));
  EXPECT_EQ(profile.at("name"), b.at("machine"));
  const ProgramResult plan = run({"plan", "config.json", "--machine", "machine.json", "--json"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(json::parse(plan.out).at("machine").at("assumed"), false);
}

TEST_F(BenchTest, OnePartLeavesTheOthersUnknown) {
  const json b = bench({"adam", "--out", "adam.json"});
  EXPECT_TRUE(b.contains("adam"));
  for (const char* other : {"disk", "copy", "memory", "compute", "together"}) EXPECT_FALSE(b.contains(other)) << other;
  const ProgramResult plan = run({"plan", "config.json", "--machine", "adam.json"});
  EXPECT_EQ(plan.status, 2);  // it needs a disk
}

TEST_F(BenchTest, ASustainedWriteEndsAndSaysWhetherItIsFlat) {
  const json b = bench({"disk", "--sustained", "--most", "3"});
  const json& s = b.at("sustained");
  EXPECT_GT(s.at("gb_per_s"), 0);
  EXPECT_GE(s.at("windows_gb_per_s").size(), 5u);
  EXPECT_TRUE(s.at("flat").is_boolean());
}

TEST_F(BenchTest, TheTextNamesWhatWasMeasured) {
  const ProgramResult r = run({"bench", "memory", "adam", "--seconds", "0.3"});
  EXPECT_EQ(r.status, 0) << r.err;
  for (const char* text : {"GB/s", "Mparam/s", "% of its stream", "ms/GB"}) EXPECT_THAT(r.out, HasSubstr(text));
}

TEST_F(BenchTest, BadInputIsRefused) {
  expect_refused({"bench", "gpu"}, 2, {"see sluice bench --help"});
  expect_refused({"bench", "adam", "--sustained"}, 2, {"--sustained is about the disk"});
  expect_refused({"bench", "disk", "--dir", "nowhere"}, 2, {"no such folder"});
  expect_refused({"bench", "compute", "--model", "Llama-9"}, 2, {"Llama-3.1-8B"});
}

}  // namespace
}  // namespace sluice::apps
