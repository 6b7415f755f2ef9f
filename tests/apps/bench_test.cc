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
  EXPECT_GT(b.at("compute").at("cpu_s_per_tflop"), 0);
  EXPECT_EQ(b.at("together").size(), 5u);
  for (const auto& [name, value] : b.at("together").items()) {
    EXPECT_GT(value.at("rate"), 0) << name;
    EXPECT_GE(value.at("spread"), 0) << name;
    EXPECT_GT(value.at("fraction_of_alone"), 0) << name;
  }
  EXPECT_GT(b.at("together_busy_cores"), 0);

  expect_refused({"plan", "config.json", "--machine", "machine.json", "--world", "2"}, 2, {"no net.rate", "sluice bench"});

  const json profile = json::parse(read_all(at("machine.json")));
  EXPECT_EQ(profile.at("name"), b.at("machine"));
  const ProgramResult plan = run({"plan", "config.json", "--machine", "machine.json", "--json"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(json::parse(plan.out).at("machine").at("assumed"), false);

  bench({"comm", "--nproc", "2", "--out", "machine.json"});
  json more = json::parse(read_all(at("machine.json")));
  EXPECT_TRUE(more.at("net").contains("rate"));
  for (const char* section : {"net", "memory"}) more.erase(section);  // the latter is of now
  json before = profile;
  for (const char* section : {"net", "memory"}) before.erase(section);
  EXPECT_EQ(more, before);
  const ProgramResult ranks = run({"plan", "config.json", "--machine", "machine.json", "--world", "2", "--json"});
  EXPECT_EQ(ranks.status, 0) << ranks.err;
  EXPECT_GT(json::parse(ranks.out).at("bytes_per_step").at("net"), 0);
}

TEST_F(BenchTest, RanksMeasureHowFastTheyExchange) {
  for (const int n : {2, 3}) {
    const json b = bench({"comm", "--nproc", std::to_string(n), "--out", "ranks.json"});
    for (const char* other : {"adam", "disk", "together"}) EXPECT_FALSE(b.contains(other)) << other;
    const json& c = b.at("comm");
    EXPECT_EQ(c.at("ranks"), n);
    EXPECT_THAT(c.at("transport").get<std::string>(), HasSubstr(std::to_string(n) + " ranks"));
    const double gather = c.at("gather").at("gb_per_s"), reduce = c.at("reduce").at("gb_per_s");
    expect_share(c.at("gather").at("fraction_of_memcpy"));
    EXPECT_NEAR(c.at("reduce").at("fraction_of_gather").get<double>(), reduce / gather, 1e-6);
    EXPECT_GT(c.at("latency_us"), 0);
    EXPECT_LT(c.at("latency_us"), 1e6);
    // A profile is of one rank that has the machine for itself.
    const json profile = json::parse(read_all(at("ranks.json")));
    const std::string rate = profile.at("net").at("rate");
    const double gigabytes = std::stod(rate) * (rate.ends_with("GB/s") ? 1 : 1e-3);
    EXPECT_NEAR(gigabytes, n * 3 / (2 / gather + 1 / reduce), 1e-4 * gigabytes) << rate;
    EXPECT_NEAR(profile.at("net").at("latency").get<double>(), 1e-6 * c.at("latency_us").get<double>(), 1e-6);
    std::filesystem::remove(at("ranks.json"));
  }
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

TEST_F(BenchTest, APageCacheIsNotTakenForADrive) {
  const SmallDisk disk(at("disk"), "600m");
  if (!disk.valid()) GTEST_SKIP() << "no file system can be mounted here";
  environment_["SLUICE_IO"] = "threads";  // asked for, so no fallback of its own
  EXPECT_THAT(succeed({"bench", "disk", "--dir", "disk", "--seconds", "0.2"}), HasSubstr("no direct I/O (O_DIRECT)"));
  expect_refused({"bench", "disk", "--dir", "disk", "--seconds", "0.2", "--strict"}, 7, {"no direct I/O (O_DIRECT)", "--strict"});
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
  expect_refused({"bench", "disk", "--most", "5"}, 2, {"--most requires --sustained"});
  expect_refused({"bench", "compute", "--model", "Llama-9"}, 2, {"Llama-3.1-8B"});
  expect_refused({"bench", "comm"}, 2, {"sluice bench comm --nproc N"});
  expect_refused({"bench", "adam", "--nproc", "2"}, 2, {"--nproc is about comm"});
  expect_refused({"bench", "adam", "--dir", "."}, 2, {"--dir is about the disk"});
  expect_refused({"bench", "memory", "--model", "SmolLM2-135M"}, 2, {"--model is about compute"});
  expect_refused({"bench", "disk", "--threads", "1"}, 2, {"--threads is about adam"});
  expect_refused({"bench", "memory", "--out", "nowhere/machine.json"}, 2, {"--out nowhere/machine.json", "No such file"});
  write_all(at("no_profile.json"), R"({"disc": {}})");
  expect_refused({"bench", "memory", "--out", "no_profile.json"}, 2, {"unknown key \"disc\""});
}

}  // namespace
}  // namespace sluice::apps
