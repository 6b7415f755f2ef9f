// Settings that are left open, and sluice tune, as people run them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tests/apps/run_fixture.h"

namespace sluice::apps {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSearched[] = {"execution.overlap",      "execution.boundaries", "execution.keep_graphs",    "execution.keep_weights",
                                     "execution.device_slots", "execution.pools.state", "execution.pools.weights", "memory.pinned"};

class TuneTest : public RunFixture {
 protected:
  void SetUp() override {
    RunFixture::SetUp();
    environment_["XDG_CACHE_HOME"] = at("cache");
    write_all(at("1b.json"), R"({"model": {"sizes": "Llama-3.2-1B"}, "data": {"sequence_length": 1024}, "steps": 10,
      "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
      "zero_optimization": {"offload_param": {"device": "nvme"}, "offload_optimizer": {"device": "nvme"}}})");
  }
  ProgramResult on_4090(const char* command, const std::string& config, const Words& set, const Words& more = {}) const {
    Words words{command, config, "--machine", "rtx4090-64g"};
    for (const std::string& assignment : set) words.insert(words.end(), {"--set", assignment});
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  json document(const char* command, const std::string& config, const Words& set, const Words& more = {}) const {
    Words json_too = more;
    json_too.push_back("--json");
    const ProgramResult r = on_4090(command, config, set, json_too);
    EXPECT_EQ(r.status, 0) << r.err;
    return r.status == 0 ? json::parse(r.out) : json::object();
  }
  static Words defaults() {
    return {"execution.overlap=forward", "execution.keep_graphs=0", "execution.keep_weights=0", "execution.device_slots=2",
            "execution.pools.state=32",  "memory.pinned=0",         "execution.boundaries=gpu", "execution.pools.weights=16"};
  }
};

TEST_F(TuneTest, OpenSettingsAreChosenWithinTheBudgets) {
  const json fixed = document("plan", "1b.json", defaults());
  EXPECT_TRUE(fixed.at("chosen").empty());
  for (const Words& memory : {Words{}, Words{"memory.gpu=6GiB", "memory.host=8GiB"}, Words{"memory.gpu=5GiB", "memory.host=6GiB"}}) {
    const json open = document("plan", "1b.json", memory);
    EXPECT_LT(open.at("step_seconds"), fixed.at("step_seconds"));
    EXPECT_EQ(open.at("fits"), true);
    EXPECT_FALSE(open.at("chosen").empty());
    for (const json& choice : open.at("chosen")) {
      EXPECT_THAT(kSearched, testing::Contains(choice.at("key").get<std::string>()));
      EXPECT_FALSE(choice.at("reason").get<std::string>().empty());
    }
    EXPECT_EQ(open, document("plan", "1b.json", memory));  // deterministic
  }
}

// Weights from the disk and state in RAM: what waits is a layer's copy for its read.
TEST_F(TuneTest, BuffersForWeightsAreChosenWhereReadsAreWaitedFor) {
  Words set = defaults();
  std::erase(set, "execution.pools.weights=16");
  set.insert(set.end(), {"zero_optimization.offload_optimizer.device=cpu", "storage.durable=checkpoint"});
  const json open = document("plan", "1b.json", set);
  ASSERT_EQ(open.at("chosen").size(), 1u);
  EXPECT_EQ(open.at("chosen")[0].at("key"), "execution.pools.weights");
  set.push_back("execution.pools.weights=16");
  EXPECT_LT(open.at("step_seconds").get<double>(), 0.96 * document("plan", "1b.json", set).at("step_seconds").get<double>());
}

TEST_F(TuneTest, WhatIsGivenIsLeftAlone) {
  Words most = defaults();
  std::erase(most, "execution.keep_graphs=0");
  for (const json& choice : document("plan", "1b.json", most).at("chosen")) EXPECT_EQ(choice.at("key"), "execution.keep_graphs");
  most.push_back("execution.keep_graphs=auto");  // the same as leaving it out
  EXPECT_EQ(document("plan", "1b.json", most).at("chosen").size(), 1u);
}

TEST_F(TuneTest, AConfigThatOnlyFitsWithLessGetsLess) {
  const json roomy = document("plan", "1b.json", {"execution.device_slots=2", "execution.pools.state=32", "memory.pinned=0"});
  const uint64_t need = roomy.at("memory").at("host").at("need");
  const Words tight{"memory.host=" + std::to_string(need - (200 << 20)), "memory.pinned=0"};
  EXPECT_EQ(on_4090("plan", "1b.json", {tight[0], tight[1], "execution.pools.state=32"}).status, 5);
  const json fitted = document("plan", "1b.json", tight);
  EXPECT_EQ(fitted.at("fits"), true);
}

TEST_F(TuneTest, TheTunedConfigKeepsItsPromise) {
  const json tuned = document("tune", "1b.json", defaults(), {"--out", "best.json"});
  const double before = tuned.at("before").at("step_seconds"), after = tuned.at("after").at("step_seconds");
  EXPECT_LT(after, before);
  EXPECT_EQ(before, document("plan", "1b.json", defaults()).at("step_seconds"));
  EXPECT_EQ(tuned.at("after").at("fits"), true);
  ASSERT_FALSE(tuned.at("settings").empty());
  for (const json& s : tuned.at("settings")) {
    EXPECT_NE(s.at("was"), s.at("becomes"));
    EXPECT_THAT(kSearched, testing::Contains(s.at("key").get<std::string>()));
    EXPECT_FALSE(s.at("reason").get<std::string>().empty());
  }
  const json planned = document("plan", "best.json", {});
  EXPECT_EQ(planned.at("step_seconds"), after);
  EXPECT_TRUE(planned.at("chosen").empty());  // nothing is left open
  const ProgramResult text = on_4090("tune", "1b.json", defaults());
  EXPECT_THAT(text.out, HasSubstr("why"));
  EXPECT_THAT(on_4090("tune", "best.json", {}).out, HasSubstr("nothing to change"));
}

TEST_F(TuneTest, TheTableBeginsWithTheConfigAndFollowsTheSearch) {
  Words set = defaults();
  std::erase(set, "execution.keep_weights=0");
  set.push_back("memory.host=20GiB");
  const json tuned = document("tune", "1b.json", set, {"--out", "best.json"});
  double before = 1e9;
  for (const json& s : tuned.at("settings")) {
    const bool given = std::ranges::any_of(set, [&](const std::string& assignment) { return assignment.starts_with(s.at("key").get<std::string>() + "="); });
    EXPECT_EQ(s.at("was") == "auto", !given) << s;
    EXPECT_LE(s.at("step_seconds_before"), before) << s;
    before = s.at("step_seconds_before");
    EXPECT_LE(s.at("step_seconds_after"), before) << s;
  }
  const ProgramResult text = on_4090("tune", "1b.json", set);
  EXPECT_THAT(text.out, Not(testing::ContainsRegex("[0-9][KMG]iB")));  // "17.3 GiB" everywhere

  const ProgramResult shown = run({"config", "best.json"});  // a model that can only be planned
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("can only be planned"));
  for (const json& s : tuned.at("settings")) EXPECT_THAT(shown.out, HasSubstr(s.at("reason").get<std::string>()));
}

TEST_F(TuneTest, NumbersChangeOnlyWhenAsked) {
  const auto numeric = [](const json& config) {
    return std::make_pair(config.value("train_micro_batch_size_per_gpu", 0), config.value("gradient_accumulation_steps", 0));
  };
  const auto own = std::make_pair(2, 4);
  EXPECT_EQ(numeric(document("tune", "1b.json", {}).at("config")), own);
  const json batch = document("tune", "1b.json", {}, {"--batch"});
  const auto [micro, accumulation] = numeric(batch.at("config"));
  EXPECT_EQ(micro * accumulation, 8);
  EXPECT_LE(batch.at("after").at("step_seconds"), batch.at("before").at("step_seconds"));
  const json more = document("tune", "1b.json", {}, {"--batch", "--tokens", "16384"});
  EXPECT_EQ(more.at("after").at("tokens_per_step"), 16384);
  const json tiers = document("tune", "1b.json", {}, {"--tiers"});
  EXPECT_LE(tiers.at("after").at("step_seconds"), document("tune", "1b.json", {}).at("after").at("step_seconds"));
  EXPECT_EQ(tiers.at("config").at("storage").at("durable"), "step");
}

TEST_F(TuneTest, ATunedConfigTrainsToTheSameBits) {
  succeed(train({"run.dir=plain"}));
  const ProgramResult r = on_4090("tune", "config.json", {"memory.gpu=64MiB", "memory.host=64MiB"}, {"--out", "best.json"});
  EXPECT_EQ(r.status, 0) << r.err;
  succeed({"train", "best.json", "--set", "run.dir=tuned", "--set", "storage.paths=[]"});
  EXPECT_EQ(inspect("tuned").at("weights_xxh3"), inspect("plain").at("weights_xxh3"));
  EXPECT_EQ(inspect("tuned").at("state_xxh3"), inspect("plain").at("state_xxh3"));
}

TEST_F(TuneTest, AutoMakesTrainMeasureTheMachineOnce) {
  EXPECT_THAT(succeed(train({"run.dir=plain"})), Not(HasSubstr("measuring this machine")));
  EXPECT_FALSE(std::filesystem::exists(at("cache")));
  EXPECT_THAT(succeed(train({"run.dir=first", "execution.keep_graphs=auto", "storage.durable=none"})), testing::AllOf(HasSubstr("measuring this machine"), HasSubstr("is predicted to take")));
  EXPECT_THAT(succeed(train({"run.dir=second", "execution.keep_graphs=auto", "storage.durable=none"})),
              testing::AllOf(Not(HasSubstr("measuring this machine")), HasSubstr("is predicted to take")));
  EXPECT_EQ(read_all(at("first/metrics.jsonl")).substr(0, 60), read_all(at("plain/metrics.jsonl")).substr(0, 60)) << "the same bits";
}

// Before anything is loaded: here the run ends as soon as it finds that it does not fit.
TEST_F(TuneTest, ALongRunIsMeasuredForAndAShortOneSaysThatItIsNot) {
  const auto told = [&](const Words& set) {
    Words words{"memory.gpu=1MiB", "machine.compute=1GFLOP/s"};
    words.insert(words.end(), set.begin(), set.end());
    const ProgramResult r = run(train(words));
    EXPECT_EQ(r.status, 6) << r.err;
    return r.err;
  };
  EXPECT_THAT(told({"steps=10"}), testing::AllOf(HasSubstr("nothing is predicted"), HasSubstr("sluice plan"), Not(HasSubstr("measuring this machine"))));
  EXPECT_THAT(told({"steps=100000", "train_micro_batch_size_per_gpu=1", "data.sequence_length=8"}), HasSubstr("nothing is predicted"));  // tiny steps
  EXPECT_THAT(told({"steps=1000"}), testing::AllOf(HasSubstr("measuring this machine"), HasSubstr("is predicted to take")));
}

TEST_F(TuneTest, RanksAreTunedToo) {
  const Words batch{"train_batch_size=16", "gradient_accumulation_steps=4"};
  const json one = document("tune", "1b.json", {}), four = document("tune", "1b.json", batch, {"--world", "2"});
  EXPECT_EQ(four.at("after").at("world"), 2);
  EXPECT_GT(four.at("after").at("bytes_per_step").at("net"), 0);
  EXPECT_NE(four.at("after").at("step_seconds"), one.at("after").at("step_seconds"));
}

TEST_F(TuneTest, WhatFitsNowhereIsSaidAndNotWritten) {
  const ProgramResult r = on_4090("tune", "1b.json", {"memory.host=64MiB"}, {"--out", "best.json"});
  EXPECT_EQ(r.status, 5);
  EXPECT_THAT(r.err, HasSubstr("no settings were found that fit; best.json is not written"));
  EXPECT_THAT(r.err, HasSubstr("host needs"));
  EXPECT_THAT(r.out, Not(HasSubstr("nothing to change")));
  EXPECT_FALSE(std::filesystem::exists(at("best.json")));
}

TEST_F(TuneTest, AMissedGoalIsTheExitCode) {
  EXPECT_EQ(on_4090("tune", "1b.json", {"goals.step_seconds=0.001"}).status, 10);
  EXPECT_EQ(on_4090("tune", "1b.json", {"goals.step_seconds=1000"}).status, 0);
}

TEST_F(TuneTest, BadInputIsRefused) {
  expect_refused({"tune", "1b.json", "--machine", "h100", "--tokens", "4096"}, 2, {"goes with --batch"});
  expect_refused({"tune", "1b.json", "--machine", "h100", "--batch", "--tokens", "1000"}, 2, {"not a multiple of data.sequence_length = 1024"});
  expect_refused({"tune", "1b.json", "--machine", "h100", "--out", "nowhere/best.json"}, 2, {"--out nowhere/best.json", "No such file"});
  expect_refused({"tune", "1b.json", "--machine", "nothing"}, 2, {"neither a file nor a built-in machine"});
}

}  // namespace
}  // namespace sluice::apps
