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

}  // namespace
}  // namespace sluice::apps
