// The trainer against transformers, and against its own memory plan.
#include "engine/trainer.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/guess_policy.h"
#include "engine/hf_config.h"
#include "engine/packing.h"
#include "tests/engine/tiny_run.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;
using offload::Durable;
using offload::Tier;

nlohmann::json reference(const std::string& model) {
  return nlohmann::json::parse(std::ifstream(test_models() / model / "reference.json"));
}

// Five AdamW steps on the batches that transformers was given.
TinyResult adamw_run(const std::string& model, offload::Schema schema, const std::function<void(TrainerOptions&)>& more = {}) {
  const auto adamw = reference(model)["adamw"];
  TinyRun run;
  run.model = model;
  run.schema = schema;
  run.weights = run.state = Tier::nvme;
  run.durable = Durable::step;
  run.steps = adamw["batches"].size();
  run.adjust = [&](TrainerOptions& o) {
    o.train_tokens = test_models() / model / "adamw.tokens";
    o.shuffle = false;
    o.lr = [lr = adamw["lr"].get<double>()](uint64_t) { return lr; };
    o.optimizer.beta1 = adamw["beta1"];
    o.optimizer.beta2 = adamw["beta2"];
    o.optimizer.eps = adamw["eps"];
    o.optimizer.weight_decay = adamw["weight_decay"];
    o.model.no_decay = {"*norm*", "*ln_*", "*.bias"};
    if (more) more(o);
  };
  return run_tiny(run);
}

TEST(Training, Bf16LossesFollowTransformersOverFiveAdamWSteps) {
  for (const char* model : {"tied", "untied", "gpt2"}) {
    const auto expected = reference(model)["adamw"];
    const TinyResult got = adamw_run(model, offload::Schema::bf16);
    for (size_t i = 0; i < got.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i], expected["losses_bf16"][i].get<double>(), 2e-2) << model << " step " << i + 1;
      EXPECT_NEAR(got.norms[i] / expected["norms_f64"][i].get<double>(), 1, 2e-2) << model << " step " << i + 1;
    }
  }
}

TEST(Training, Fp16LossesFollowTransformersOverFiveAdamWSteps) {
  for (const char* model : {"tied", "untied", "gpt2"}) {
    const auto expected = reference(model)["adamw"];
    const double scale = reference(model)["fp16"]["scale"];
    const TinyResult got = adamw_run(model, offload::Schema::fp16, [&](TrainerOptions& o) { o.loss_scaler.loss_scale = scale; });
    for (size_t i = 0; i < got.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i], expected["losses_fp16"][i].get<double>(), 4e-3) << model << " step " << i + 1;
      EXPECT_NEAR(got.norms[i] / expected["norms_f64"][i].get<double>(), 1, 5e-3) << model << " step " << i + 1;
    }
  }
}

TEST(Training, Fp32LossesFollowFloat64OverFiveAdamWSteps) {
  const auto expected = reference("tied_fp32")["adamw"];
  const TinyResult got = adamw_run("tied_fp32", offload::Schema::fp32);
  for (size_t i = 0; i < got.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i] / expected["losses_f64"][i].get<double>(), 1, 1e-5) << "step " << i + 1;
    EXPECT_NEAR(got.norms[i] / expected["norms_f64"][i].get<double>(), 1, 1e-4) << "step " << i + 1;
  }
}

// The peak that the plan names is the peak that is reached; a byte less is refused before there is a store.
TEST(Budget, ThePlannedPeakIsExactAndAByteLessIsRefused) {
  const struct {
    Tier tier;
    Durable durable;
    uint32_t keep_graphs, resident_blocks, world;
  } cases[] = {{Tier::nvme, Durable::step, 0, 0, 1},       {Tier::nvme, Durable::step, 2, 0, 1},       {Tier::none, Durable::checkpoint, 0, 0, 1},
               {Tier::none, Durable::checkpoint, 2, 0, 1}, {Tier::nvme, Durable::checkpoint, 0, 2, 1}, {Tier::cpu, Durable::checkpoint, 0, 1, 2}};
  for (const auto& c : cases) {
    TinyRun run;
    run.weights = run.state = c.tier;
    run.durable = c.durable;
    run.accumulation = 2;
    run.keep_graphs = c.keep_graphs;
    run.resident_blocks = c.resident_blocks;
    run.world = c.world;
    run.steps = 2;
    const TinyResult roomy = run_tiny(run);
    EXPECT_EQ(roomy.device_peak, roomy.device_planned) << offload::to_string(c.tier) << c.keep_graphs << c.resident_blocks << c.world;
    run.device_memory = roomy.device_planned;
    EXPECT_EQ(run_tiny(run).losses, roomy.losses);
    run.device_memory = roomy.device_planned - 1;
    try {
      run_tiny(run);
      FAIL() << "a byte less was accepted";
    } catch (const base::Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::device_memory) << error.what();
      EXPECT_NE(std::string(error.what()).find("memory.gpu"), std::string::npos) << error.what();
    }
  }
}

TEST(Budget, TooLittleHostMemoryIsRefusedWithTheSettingThatFits) {
  TinyRun run;
  run.weights = run.state = Tier::cpu;
  run.adjust = [](TrainerOptions& o) { o.runtime.host_memory = 1 << 20; };
  try {
    run_tiny(run);
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::host_memory);
    EXPECT_NE(std::string(error.what()).find("memory.host"), std::string::npos) << error.what();
  }
}

// A learning rate that makes the loss overflow: stop leaves the last good step, skip counts and goes on.
TEST(NonFinite, StopsBeforeAnyWriteOrSkipsTheStep) {
  TinyRun run;
  run.weights = run.state = Tier::nvme;
  run.durable = Durable::step;
  run.steps = 4;
  run.adjust = [](TrainerOptions& o) { o.lr = [](uint64_t step) { return step == 2 ? 1e30 : 1e-3; }; };
  try {
    run_tiny(run);
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::numerics);
    EXPECT_NE(std::string(error.what()).find("step 3"), std::string::npos) << error.what();
  }
  const auto plain = run.adjust;
  run.adjust = [&](TrainerOptions& o) {
    plain(o);
    o.skip_nonfinite = true;
  };
  const TinyResult skipped = run_tiny(run);
  EXPECT_EQ(skipped.losses.size(), 4u);
  EXPECT_EQ(skipped.skipped, 2u);
}

// Only tokens of the step that predict another have a gradient in the embedding: the first one that is not finite is of the least token.
TEST(NonFinite, NamesBlockParameterAndElement) {
  for (const bool opaque : {false, true}) {
    TinyRun run;
    run.model = "untied";
    run.trainable = {"model.embed_tokens.weight", "lm_head.weight"};
    run.opaque = opaque;
    run.adjust = [](TrainerOptions& o) { o.lr = [](uint64_t step) { return step == 1 ? 1e38 : 1e-3; }; };
    const TrainerOptions options = tiny_options(run, "unused");
    const TokenFile file = TokenFile::open(options.train_tokens);
    const Packing data(file, {.seed = options.seed, .sequence = options.sequence, .shuffle = options.shuffle});
    const HfConfig config = read_hf_config(options.model.path);  // whose padding has no gradient
    int32_t least = INT32_MAX;
    for (const uint64_t number : {2, 3}) {
      const Sample sample = data.sample(number);
      for (size_t i = 0; i < sample.tokens.size(); ++i)
        if (sample.targets[i] != -100 && sample.tokens[i] != config.pad_token) least = std::min(least, sample.tokens[i]);
    }
    try {
      run_tiny(run);
      FAIL();
    } catch (const base::Error& error) {
      const std::string expected = fmt::format("the gradient of block 0, model.embed_tokens.weight, element {} is not finite", least * config.hidden);
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what() << "\n" << expected;
    }
  }
}

// A step that is rejected after tiles have been updated on a guess leaves no trace, wherever they live.
TEST(NonFinite, ASkippedStepIsTheSameInEveryPlacement) {
  const auto result = [](Tier weights, Tier state, offload::Placement placement, Durable durable = Durable::step) {
    TinyRun run;
    run.weights = weights;
    run.state = state;
    run.durable = durable;
    run.shadow = 1 << 30;
    run.placement = placement;
    run.clip = 0;
    run.steps = 5;
    run.adjust = [](TrainerOptions& o) {
      o.skip_nonfinite = true;
      o.lr = [](uint64_t step) { return step == 2 ? 1e30 : 1e-3; };
    };
    return run_tiny(run);
  };
  const TinyResult expected = result(Tier::nvme, Tier::nvme, offload::Placement::none);
  EXPECT_EQ(expected.skipped, 3u);
  for (const auto& [weights, state] : {std::pair{Tier::nvme, Tier::nvme}, {Tier::cpu, Tier::cpu}, {Tier::none, Tier::cpu}, {Tier::none, Tier::nvme}})
    for (const auto placement : {offload::Placement::forward, offload::Placement::backward, offload::Placement::spread}) {
      const TinyResult got = result(weights, state, placement);
      EXPECT_EQ(got.skipped, expected.skipped);
      EXPECT_EQ(got.redone, placement == offload::Placement::forward ? 0u : 3u);
      EXPECT_EQ(got.digest.weights, expected.digest.weights);
      EXPECT_EQ(got.digest.state, expected.digest.state);
    }
  for (const Tier weights : {Tier::cpu, Tier::none}) {  // without commits, back from shadows
    const TinyResult got = result(weights, Tier::cpu, offload::Placement::backward, Durable::checkpoint);
    EXPECT_EQ(got.skipped, expected.skipped);
    EXPECT_EQ(got.redone, 3u);
    EXPECT_EQ(got.digest.weights, expected.digest.weights);
    EXPECT_EQ(got.digest.state, expected.digest.state);
  }
}

// Timing only: every byte moves, computations take the time of their FLOP, and nothing reaches the store.
TEST(TimingOnly, TakesTheTimeAndCommitsNothing) {
  TinyRun zero;
  zero.weights = zero.state = Tier::nvme;
  zero.durable = Durable::step;
  zero.steps = 0;
  const TinyResult before = run_tiny(zero);
  TinyRun run = zero;
  run.steps = 4;
  run.poison = false;
  double seconds = 0;
  for (const auto placement : {offload::Placement::none, offload::Placement::spread}) {
    run.placement = placement;
    run.adjust = [](TrainerOptions& o) { o.emulated_compute = 1e10; };
    const auto begin = std::chrono::steady_clock::now();
    const TinyResult timed = run_tiny(run);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_EQ(timed.losses, std::vector<double>(4, 0.0));
    EXPECT_EQ(timed.redone, 0u);
    EXPECT_EQ(timed.digest.weights, before.digest.weights);
    EXPECT_EQ(timed.digest.state, before.digest.state);
  }
  run.adjust = [](TrainerOptions& o) { o.emulated_compute = 1e9; };
  const auto begin = std::chrono::steady_clock::now();
  run_tiny(run);
  const double slower = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GT(slower, seconds + 0.2);  // a tenth of the rate
}

// With a limit that is passed now and then, a placement that guesses redoes exactly the clipped steps.
TEST(Guess, IsRedoneForClippedStepsAndOnlyThose) {
  for (const auto placement : {offload::Placement::backward, offload::Placement::spread}) {
    TinyRun run;
    run.weights = run.state = Tier::nvme;
    run.durable = Durable::step;
    run.steps = 8;
    run.clip = kTinyClip;
    run.placement = placement;
    const TinyResult result = run_tiny(run);
    const auto clipped = std::count_if(result.clips.begin(), result.clips.end(), [](double clip) { return clip != 1.0; });
EXPECT_GT(clipped, 0);
    EXPECT_LT(clipped, 8);
    EXPECT_EQ(result.redone, static_cast<uint64_t>(clipped));
  }
}

// While guesses fail too often all updates are deferred, and the policy comes back when they would come true; no bit changes.
TEST(Guess, GivesUpAndComesBackWithoutChangingABit) {
  TinyRun run;
  run.weights = run.state = Tier::nvme;
  run.durable = Durable::step;
  run.steps = 60;
  run.clip = kTinyClip;
  const TinyResult plain = run_tiny(run);
  const auto clipped = [&](size_t first, size_t last) {
    return std::count_if(plain.clips.begin() + static_cast<std::ptrdiff_t>(first), plain.clips.begin() + static_cast<std::ptrdiff_t>(last),
                         [](double clip) { return clip != 1.0; });
  };
  ASSERT_GT(clipped(0, 20), 3);
  run.placement = offload::Placement::spread;
  for (const double limit : {0.0, 0.2, 1.0}) {
    run.adjust = [&](TrainerOptions& o) { o.guess_limit = limit; };
    const TinyResult got = run_tiny(run);
    EXPECT_EQ(got.losses, plain.losses);
    EXPECT_EQ(got.digest.weights, plain.digest.weights);
    EXPECT_EQ(got.digest.state, plain.digest.state);
    if (limit == 1.0) {
      EXPECT_EQ(got.redone, static_cast<uint64_t>(clipped(0, 60)));
      EXPECT_EQ(got.guessed, 60u);
    } else {
      EXPECT_LT(got.redone, 12u);
      EXPECT_LT(got.guessed, 60u);
      EXPECT_GE(got.guessed, got.redone);
    }
  }
}

TEST(GuessPolicy, TrustsTheFirstStepsGivesUpAboveTheLimitAndComesBackWellBelow) {
  GuessPolicy policy(0.3);
  for (int i = 0; i < 3; ++i) policy.add(true);
  EXPECT_TRUE(policy.guess());  // too few to judge
  policy.add(true);
  EXPECT_FALSE(policy.guess());
  for (int i = 0; i < 16; ++i) policy.add(false);
  EXPECT_FALSE(policy.guess());  // 4 of 20: below the limit, above its half
  for (int i = 0; i < 2; ++i) policy.add(false);
  EXPECT_TRUE(policy.guess());
  for (int i = 0; i < 100; ++i) policy.add(i % 5 == 0);
  EXPECT_TRUE(policy.guess());
}

}  // namespace
}  // namespace sluice::engine
