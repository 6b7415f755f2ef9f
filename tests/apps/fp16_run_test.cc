// fp16 as a user meets it: an imported DeepSpeed config, skipped steps that are told, a scale that a resume goes on with.

#include <cmath>
#include <sstream>

#include "base/error.h"
#include "tests/apps/run_fixture.h"

namespace sluice::apps {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class Fp16Run : public RunFixture {
 protected:
  // The lines that have the key: "loss" for steps, "event".
  std::vector<json> metrics(const std::string& run, const char* key) const {
    std::vector<json> lines;
    std::istringstream in(read_all(at(run) / "metrics.jsonl"));
    for (std::string line; std::getline(in, line);)
      if (json parsed = json::parse(line); parsed.contains(key)) lines.push_back(parsed);
    return lines;
  }
};

TEST_F(Fp16Run, OverflowsAreToldCountedAndAdvisedOn) {
  const Words fp16{"fp16={\"enabled\":true,\"initial_scale_power\":40,\"hysteresis\":1}", "steps=12"};
  const std::string told = succeed(train(fp16));
  EXPECT_THAT(told, HasSubstr("SKIPPED: overflow at loss scale 1099511627776, now 549755813888"));
  EXPECT_THAT(told, HasSubstr("loss_scale: the gradients of the last 10 steps overflowed"));
  EXPECT_THAT(told, HasSubstr("fp16.initial_scale_power"));
  EXPECT_THAT(told, HasSubstr("12 skipped"));
  const auto steps = metrics("run", "loss"), events = metrics("run", "event");
  ASSERT_EQ(steps.size(), 12u);
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i]["loss_scale"], std::ldexp(1.0, 40 - static_cast<int>(i)));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["event"], "loss_scale");
  EXPECT_EQ(events[0]["step"], 10);
  // Another command goes on with the scale where it was, and with no other rules.
  succeed(resume({fp16[0], "steps=14"}));
  EXPECT_EQ(metrics("run", "loss").back()["loss_scale"], std::ldexp(1.0, 40 - 13));
  expect_refused(resume({"fp16={\"enabled\":true,\"initial_scale_power\":40,\"hysteresis\":2}", "steps=14"}), 2,
                 {"numeric settings", "fp16.hysteresis"});
  expect_refused(resume({"steps=14"}), 2, {"numeric settings", "fp16.enabled", "bf16.enabled"});
  succeed({"eval", "run"});
  // The master is what is exported, in the types of the model's own file: it has not changed.
  succeed({"export", "run", "out"});
  EXPECT_TRUE(read_all(at("out/model.safetensors")) == read_all(at("model/model.safetensors")));
}

TEST_F(Fp16Run, RanksFollowOneScaleAndOneRankGoesOnWithIt) {
  const auto ranks = [](const std::string& n, const std::string& steps) {
    return train({"fp16={\"enabled\":true,\"initial_scale_power\":36}", "train_micro_batch_size_per_gpu=1", "train_batch_size=4", "steps=" + steps},
                 {"--resume", "auto", "--nproc", n});
  };
  succeed(ranks("2", "1"));
  EXPECT_EQ(inspect("run").at("skipped"), 1);
  succeed(ranks("1", "2"));
  succeed(ranks("2", "4"));
  // The hysteresis of 2 outlives the resume too: the second overflow halves.
  std::vector<double> scales;
  for (const json& step : metrics("run", "loss")) scales.push_back(step["loss_scale"]);
  EXPECT_EQ(scales, (std::vector<double>{0x1p36, 0x1p36, 0x1p35, 0x1p34}));
  EXPECT_EQ(inspect("run").at("skipped"), 4);
}

TEST_F(Fp16Run, AFixedScaleStays) {
  const std::string told = succeed(train({"fp16={\"enabled\":true,\"loss_scale\":1e12}", "steps=10"}));
  EXPECT_THAT(told, HasSubstr("SKIPPED: overflow at loss scale 1000000000000, which stays"));
  EXPECT_THAT(told, HasSubstr("a lower fp16.loss_scale"));
  EXPECT_THAT(told, HasSubstr("10 skipped"));
  succeed(train({"fp16={\"enabled\":true,\"loss_scale\":128}", "run.dir=other", "steps=2"}));
  for (const json& step : metrics("other", "loss")) {
    EXPECT_EQ(step["loss_scale"], 128);
    EXPECT_EQ(step["skipped"], false);
  }
}

TEST_F(Fp16Run, AtTheLeastScaleItStops) {
  const ProgramResult result = run(train({"fp16={\"enabled\":true,\"initial_scale_power\":40,\"hysteresis\":1,\"min_loss_scale\":549755813888}", "steps=3"}));
  EXPECT_EQ(result.status, static_cast<int>(base::ErrorKind::numerics));
  EXPECT_THAT(result.err, HasSubstr("fp16.min_loss_scale 549755813888"));
  EXPECT_EQ(metrics("run", "loss").size(), 1u);
}

// On two ranks, in every stage with the same numbers.
TEST_F(Fp16Run, DeepspeedConfigsOfGpt2Train) {
  std::vector<double> losses;
  for (const char* stage : {"stage1", "stage2", "stage3"}) {
    const std::string file = (source_dir() / "configs/zero").string() + "/gpt2-" + stage + ".json";
    const json own{{"deepspeed", file},
                   {"model", {{"path", (test_models() / "gpt2/model").string()}, {"loss_chunk", 64}}},
                   {"data", {{"train", (test_models() / "train.tokens").string()}, {"sequence_length", 64}}},
                   {"steps", 3},
                   {"run", {{"dir", stage}}},
                   {"storage", {{"tile", 65536}}},
                   {"memory", {{"gpu", "256MiB"}, {"host", "256MiB"}}},
                   {"machine", {{"device", "cpu"}, {"compute_threads", 1}}}};
    write_all(at("config.json"), own.dump());
    const std::string told = succeed({"train", "config.json", "--nproc", "2"});
    EXPECT_THAT(told, HasSubstr("zero_optimization.allgather_bucket_size has no effect"));
    std::vector<double> seen;
    for (const json& step : metrics(stage, "loss")) {
      EXPECT_TRUE(step["loss_scale"] == 65536 || step["loss_scale"] == 32768) << step;
      seen.push_back(step["loss"]);
    }
    ASSERT_EQ(seen.size(), 3u);
    if (losses.empty()) losses = seen;
    EXPECT_EQ(seen, losses) << stage;
  }
}

}  // namespace
}  // namespace sluice::apps
