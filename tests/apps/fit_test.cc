// What is advised when a run does not fit: all of it together makes the run fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "tests/apps/run_fixture.h"

namespace sluice::apps {
namespace {

using testing::HasSubstr;

// The ways that the advice names, each as "key=value".
std::vector<Words> advised(const std::string& text) {
  std::vector<Words> ways;
  const size_t in = text.find(" would fit");
  if (in == std::string::npos) return ways;
  const size_t from = text.rfind('\n', in) + 1;
  std::string line = text.substr(from, text.find('\n', in) - from);
  for (size_t end = 0; end != std::string::npos; line.erase(0, end == std::string::npos ? 0 : end + 5)) {
    end = line.find("; or ");
    const std::string way = line.substr(0, end);
    const std::regex setting(R"(([a-z_0-9.]+) = ([^ ,;]+))");
    Words& set = ways.emplace_back();
    for (std::sregex_iterator i(way.begin(), way.end(), setting), none; i != none; ++i) set.push_back((*i)[1].str() + "=" + (*i)[2].str());
  }
  return ways;
}

class FitTest : public RunFixture {
 protected:
  ProgramResult plan(const std::string& model, const std::string& machine, const Words& set) const {
    write_all(at("fit.json"), R"({"model": {"sizes": ")" + model + R"("}, "data": {"sequence_length": 4096},
      "gradient_accumulation_steps": 8, "train_micro_batch_size_per_gpu": 1,
      "zero_optimization": {"offload_param": {"device": "nvme"}, "offload_optimizer": {"device": "nvme"}}})");
    Words words{"plan", "fit.json", "--machine", machine};
    for (const std::string& assignment : set) words.insert(words.end(), {"--set", assignment});
    return run(words);
  }
  // Returns the first way.
  Words expect_advice_that_fits(const std::string& model, const std::string& machine, const Words& set) const {
    const ProgramResult refused = plan(model, machine, set);
    EXPECT_THAT(refused.status, testing::AnyOf(5, 6)) << refused.err;
    const std::vector<Words> ways = advised(refused.err);
    EXPECT_FALSE(ways.empty()) << refused.err;
    for (const Words& way : ways) {
      EXPECT_FALSE(way.empty()) << refused.err;
      Words all = set;
      all.insert(all.end(), way.begin(), way.end());
      const ProgramResult r = plan(model, machine, all);
      EXPECT_EQ(r.status, 0) << model << " on " << machine << ", advised: " << refused.err << "with it: " << r.err;
    }
    return ways.empty() ? Words{} : ways.front();
  }
};

// What one place gains by it another one must have.
TEST_F(FitTest, PlacesAreSeenToTogether) {
  const Words way = expect_advice_that_fits("Llama-3-70B", "rtx4090-128g", {});
  EXPECT_THAT(way, testing::Contains("execution.boundaries=host"));
  EXPECT_THAT(way, testing::Contains(testing::StartsWith("memory.host=")));
}

TEST_F(FitTest, AllThatIsAdvisedFits) {
  const std::string weights = "zero_optimization.offload_param.device=", state = "zero_optimization.offload_optimizer.device=";
  expect_advice_that_fits("Llama-3.2-3B", "h100", {weights + "none", state + "none", "memory.gpu=30GiB"});
  expect_advice_that_fits("Llama-3.2-3B", "rtx4090-64g", {weights + "none", state + "none", "memory.host=16GiB"});
  expect_advice_that_fits("Llama-3.2-3B", "rtx3090-64g", {weights + "cpu", state + "cpu", "memory.host=30GiB"});
  expect_advice_that_fits("Llama-3.2-1B", "rtx3090-64g", {"train_micro_batch_size_per_gpu=16", "gradient_accumulation_steps=4", "train_batch_size=64", "memory.gpu=6GiB"});
  expect_advice_that_fits("Llama-3.2-1B", "rtx4090-64g", {"memory.gpu=3GiB", "execution.keep_graphs=all", "execution.device_slots=4"});
}

// Where no setting that keeps the numbers helps, a smaller batch is the other way.
TEST_F(FitTest, WithoutSettingsThatHelpMemoryOrASmallerBatchIsNamed) {
  const Words set{"memory.host=40GiB", "memory.gpu=4GiB", "execution.boundaries=host", "execution.device_slots=1"};
  const ProgramResult r = plan("Llama-3.2-3B", "rtx4090-128g", set);
  EXPECT_EQ(r.status, 6);
  EXPECT_THAT(r.err, HasSubstr(" and has 4.00 GiB: memory.gpu = "));
  EXPECT_THAT(r.err, testing::ContainsRegex(" would fit; or .*(a smaller batch)"));
}

// Pools count: those of a placement that guesses hold layers.
TEST_F(FitTest, SmallerPoolsAreAdvisedBeforeMoreMemory) {
  const Words set{"execution.overlap=spread", "execution.pools.state=8", "memory.pinned=0", "execution.boundaries=gpu", "memory.gpu=64GiB",
                  "memory.host=7600MiB",     "execution.keep_graphs=0",   "execution.keep_weights=0"};
  const Words way = expect_advice_that_fits("Llama-3.2-3B", "rtx4090-128g", set);
  ASSERT_EQ(way.size(), 1u);
  EXPECT_THAT(way[0], testing::StartsWith("execution.pools.weights="));
}

// A run that is refused says what plan says, and runs with it.
TEST_F(FitTest, TrainAdvisesWhatFits) {
  const Words large{"execution.keep_graphs=all", "execution.device_slots=4", "execution.overlap=forward"};
  for (const auto& [budget, status] : {std::pair{"memory.gpu=4800KiB", 6}, {"memory.gpu=2MiB", 6}, {"memory.host=3MiB", 5}}) {
    Words set = large;
    set.push_back(budget);
    const ProgramResult refused = run(train(set));
    EXPECT_EQ(refused.status, status) << budget << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("the run needs"));
    EXPECT_THAT(refused.err, testing::Not(testing::ContainsRegex("[0-9]{6}"))) << "bytes are for programs";
    const std::vector<Words> ways = advised(refused.err);
    ASSERT_FALSE(ways.empty()) << refused.err;
    for (const Words& way : ways) {
      Words all = set;
      all.insert(all.end(), way.begin(), way.end());
      EXPECT_THAT(succeed(train(all)), HasSubstr("finished")) << refused.err;
      std::filesystem::remove_all(at("run"));
    }
  }
}

// To the byte: plan refuses exactly what train does. What LibTorch takes on the device is estimated by the one and counted by the other.
TEST_F(FitTest, PlanAndTrainHaveTheSameBudgets) {
  const Words fixed{"execution.keep_graphs=0", "execution.keep_weights=0", "execution.boundaries=gpu", "memory.pinned=0"};
  for (const Words& some : {Words{"execution.overlap=backward", "execution.pools.state=8", "execution.device_slots=3", "gradient_accumulation_steps=3"},
                            Words{"execution.overlap=none", "execution.pools.state=6", "execution.device_slots=2",
                                  "zero_optimization.offload_param.device=cpu"}}) {
    Words set = fixed;
    set.insert(set.end(), some.begin(), some.end());
    const auto with = [&](const std::string& key, uint64_t bytes) {
      Words all = set;
      all.push_back(key + "=" + std::to_string(bytes));
      return all;
    };
    const auto plan_status = [&](const Words& all) {
      Words words{"plan", "config.json", "--machine", "rtx4090-64g"};
      for (const std::string& assignment : all) words.insert(words.end(), {"--set", assignment});
      return run(words).status;
    };
    succeed(train(set));
    const nlohmann::json rows = nlohmann::json::parse(read_all(at("run/memory.json"))).at("rows");
    std::map<std::string, uint64_t> need;
    for (const auto& row : rows) need[row.at("place")] += row.at("need").get<uint64_t>();
    std::filesystem::remove_all(at("run"));
    EXPECT_EQ(plan_status(with("memory.host", need["host"])), 0);
    EXPECT_EQ(plan_status(with("memory.host", need["host"] - 1)), 5);
    EXPECT_EQ(run(train(with("memory.host", need["host"] - 1))).status, 5);
    EXPECT_EQ(run(train(with("memory.gpu", need["gpu"] - 1))).status, 6);
    Words least = with("memory.host", need["host"]);
    least.push_back("memory.gpu=" + std::to_string(need["gpu"]));
    succeed(train(least));
    std::filesystem::remove_all(at("run"));
  }
}

class FullDiskTest : public RunFixture {
 protected:
  void SetUp() override {
    RunFixture::SetUp();
    environment_["XDG_CACHE_HOME"] = at("cache");
  }
  ProgramResult plan(const std::string& run_dir, const Words& more = {}) const {
    Words words{"plan", "config.json", "--set", "run.dir=" + run_dir};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

// A run that is there has its room already, and goes on; another one would need as much again.
TEST_F(FullDiskTest, TheStoreOfARunIsNotCountedTwice) {
  const SmallDisk disk(at("disk"), "32m");
  if (!disk.valid()) GTEST_SKIP() << "cannot mount a small disk here";
  succeed(train({"run.dir=disk/run"}));
  const ProgramResult there = plan("disk/run");
  EXPECT_EQ(there.status, 0) << there.err;
  EXPECT_THAT(there.err, testing::Not(HasSubstr("would fit")));
  EXPECT_EQ(run(resume({"run.dir=disk/run", "steps=3"})).status, 0);
  EXPECT_EQ(plan("disk/run", {"--set", "storage.tile=131072"}).status, 7);  // it would be rewritten beside the old one
  const ProgramResult another = plan("disk/other");
  EXPECT_EQ(another.status, 7) << another.err;
  EXPECT_THAT(another.err, HasSubstr("storage.durable = none would fit"));
}

// Rates that cannot be measured leave the times out, not the memory.
TEST_F(FullDiskTest, WithoutRoomToMeasureThereIsATableWithoutTimes) {
  const SmallDisk disk(at("disk"), "32m");
  if (!disk.valid()) GTEST_SKIP() << "cannot mount a small disk here";
  const ProgramResult r = plan("disk/run");
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("32.0 MiB free, too little to measure the drive"));
  EXPECT_THAT(r.out, HasSubstr("slots"));
  EXPECT_THAT(r.out, HasSubstr("step             not known"));
  const nlohmann::json p = nlohmann::json::parse(plan("disk/run", {"--json"}).out);
  EXPECT_TRUE(p.at("step_seconds").is_null());
  EXPECT_TRUE(p.at("bottleneck").is_null());
  EXPECT_GT(p.at("memory").at("host").at("need"), 1 << 20);
  EXPECT_THAT(plan("disk/run", {"--sweep", "execution.overlap=none"}).out, HasSubstr("?"));
  EXPECT_EQ(run({"tune", "config.json", "--set", "run.dir=disk/run"}).status, 7);
  // What does not touch the drive in a step is timed all the same.
  const ProgramResult in_ram = plan("disk/run", {"--set", "zero_optimization.offload_param.device=cpu", "--set", "zero_optimization.offload_optimizer.device=cpu"});
  EXPECT_EQ(in_ram.status, 0) << in_ram.err;
  EXPECT_THAT(in_ram.out, HasSubstr("tokens/s"));
}

}  // namespace
}  // namespace sluice::apps
