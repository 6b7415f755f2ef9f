// Training in fp16: loss scaling, skipped steps, and the same bits wherever state lives.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "tests/engine/tiny_run.h"

namespace sluice::engine {
namespace {

using offload::Durable;
using offload::Placement;
using offload::Tier;

// Few tokens a step: LibTorch multiplies fp16 matrices a hundred times slower than bf16 on a CPU.
TinyRun fp16_run() {
  TinyRun run;
  run.micro_batch = 1;
  run.schema = offload::Schema::fp16;
  run.weights = run.state = Tier::nvme;
  run.durable = Durable::step;
  run.clip = kTinyClip;
  return run;
}

// Scales that overflow at first, and that grow again.
void lively(TrainerOptions& o) {
  o.loss_scaler.initial_scale_power = 24;
  o.loss_scaler.loss_scale_window = 2;
  o.loss_scaler.hysteresis = 1;
  o.sequence = 32;
}

void expect_equal(const TinyResult& got, const TinyResult& expected) {
  EXPECT_EQ(got.losses, expected.losses);
  EXPECT_EQ(got.scales, expected.scales);
  EXPECT_EQ(got.skipped, expected.skipped);
  EXPECT_EQ(got.norms, expected.norms);
  EXPECT_EQ(got.digest.weights, expected.digest.weights);
  EXPECT_EQ(got.digest.state, expected.digest.state);
}

TEST(Fp16, AnOverflowSkipsItsStepAndHalvesTheScaleUntilItFits) {
  TinyRun run = fp16_run();
  run.steps = 0;
  const TinyResult before = run_tiny(run);
  run.steps = 3;
  run.adjust = lively;
  const TinyResult skipped = run_tiny(run);
  EXPECT_EQ(skipped.scales, (std::vector<double>{0x1p24, 0x1p23, 0x1p22}));
  EXPECT_EQ(skipped.skipped, 3u);
  EXPECT_EQ(skipped.digest.weights, before.digest.weights);
  EXPECT_EQ(skipped.digest.state, before.digest.state);

  run.steps = 20;
  const TinyResult longer = run_tiny(run);
  EXPECT_GT(longer.skipped, 3u);
  EXPECT_LT(longer.skipped, 20u);
  const LossScaler scaler(tiny_options(run, "").loss_scaler);
  LossScale scale = scaler.initial();
  uint64_t overflows = 0;
  for (size_t i = 0; i < longer.losses.size(); ++i) {
    EXPECT_TRUE(std::isfinite(longer.losses[i]));
    EXPECT_EQ(longer.scales[i], scale.scale) << i;
    const bool overflow = !std::isfinite(longer.norms[i]);
    overflows += overflow;
    scale = scaler.after(scale, overflow);
    EXPECT_EQ(longer.next_scales[i], scale.scale) << i;
  }
  EXPECT_EQ(overflows, longer.skipped);
  EXPECT_LT(longer.losses.back(), longer.losses.front());
  EXPECT_NE(longer.digest.weights, before.digest.weights);
}

// Norm, clip and update do not see the scale: other powers of two change rounding of the smallest values alone.
TEST(Fp16, TheScaleLeavesNoTraceInTheResult) {
  TinyRun run = fp16_run();
  const auto with = [&](double scale) {
    run.adjust = [scale](TrainerOptions& o) { o.loss_scaler.loss_scale = scale; };
    return run_tiny(run);
  };
  const TinyResult small = with(256), large = with(4096);
  EXPECT_EQ(small.scales, std::vector<double>(run.steps, 256.0));
  EXPECT_EQ(small.skipped + large.skipped, 0u);
  EXPECT_EQ(small.losses[0], large.losses[0]);
  for (size_t i = 0; i < run.steps; ++i) {
    EXPECT_NEAR(small.norms[i] / large.norms[i], 1, 2e-3) << i;
    EXPECT_NEAR(small.losses[i], large.losses[i], 5e-3) << i;
  }
  // The same model in bf16 has the same gradients, but for its own rounding.
  run.schema = offload::Schema::bf16;
  run.adjust = nullptr;
  const TinyResult bf16 = run_tiny(run);
  for (size_t i = 0; i < run.steps; ++i) {
    EXPECT_NEAR(bf16.norms[i] / large.norms[i], 1, 3e-2) << i;
    EXPECT_NEAR(bf16.losses[i], large.losses[i], 3e-2) << i;
  }
}

TEST(Fp16, TiersPlacementsAndResumesGiveTheSameBits) {
  TinyRun run = fp16_run();
  run.steps = 14;
  run.adjust = lively;
  const TinyResult expected = run_tiny(run);
  EXPECT_GT(expected.skipped, 3u);
  EXPECT_LT(expected.skipped, 13u);
  struct Variant {
    Tier weights, state;
    Durable durable;
    Placement placement;
    std::vector<uint64_t> stops;
    uint32_t resident_blocks = 0;
    bool opaque = false;  // the device updates what is on it
  };
  const Variant variants[] = {
      {Tier::none, Tier::none, Durable::checkpoint, Placement::forward, {}},
      {Tier::cpu, Tier::cpu, Durable::step, Placement::backward, {}},
      {Tier::nvme, Tier::nvme, Durable::step, Placement::spread, {2, 9}},  // amid overflows, and after growth
      {Tier::none, Tier::nvme, Durable::step, Placement::none, {5}},
      {Tier::nvme, Tier::cpu, Durable::checkpoint, Placement::forward, {1, 12}},
      {Tier::none, Tier::cpu, Durable::step, Placement::spread, {}},
      {Tier::nvme, Tier::nvme, Durable::checkpoint, Placement::none, {1, 2, 11}},  // commits of skipped steps alone
      {Tier::none, Tier::none, Durable::checkpoint, Placement::none, {3}},
      {Tier::nvme, Tier::nvme, Durable::checkpoint, Placement::forward, {1, 10}, 1, true},
      {Tier::cpu, Tier::cpu, Durable::checkpoint, Placement::none, {2}, 2},
      {Tier::none, Tier::nvme, Durable::none, Placement::forward, {}, 3, true},
  };
  for (const Variant& v : variants) {
    run.weights = v.weights, run.state = v.state, run.durable = v.durable, run.placement = v.placement, run.stops = v.stops;
    run.resident_blocks = v.resident_blocks, run.opaque = v.opaque;
    expect_equal(run_tiny(run), expected);
    if (HasFailure()) FAIL() << offload::to_string(v.weights) << " " << offload::to_string(v.state) << " " << offload::to_string(v.placement);
  }
}

TEST(Fp16, RanksDecideAlike) {
  TinyRun run = fp16_run();
  run.world = 2;
  run.steps = 12;
  run.weights = run.state = Tier::cpu;
  run.durable = Durable::checkpoint;
  run.adjust = lively;
  const TinyResult expected = run_tiny(run);
  EXPECT_GT(expected.skipped, 3u);
  EXPECT_LT(expected.skipped, 12u);
  run.resident_blocks = 2;
  expect_equal(run_tiny(run), expected);
  run.resident_blocks = 0;
  run.weights = run.state = Tier::none;
  for (const uint32_t stage : {0u, 1u, 2u}) {
    run.zero_stage = stage;
    expect_equal(run_tiny(run), expected);
  }
}

TEST(Fp16, AtTheLeastScaleOnNonfiniteDecides) {
  TinyRun run = fp16_run();
  run.steps = 2;
  run.adjust = [](TrainerOptions& o) {
    lively(o);
    o.loss_scaler.min_loss_scale = 0x1p23;
  };
  try {
    run_tiny(run);
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), base::ErrorKind::numerics);
    for (const char* text : {"step 2: the gradient of", "fp16.min_loss_scale 8388608"})
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
  const auto stop = run.adjust;
  run.adjust = [&](TrainerOptions& o) {
    stop(o);
    o.skip_nonfinite = true;
  };
  EXPECT_EQ(run_tiny(run).skipped, 2u);
}

// A loss beyond cure is no matter of the scale.
TEST(Fp16, ALossThatIsNotFiniteStops) {
  TinyRun run = fp16_run();
  run.steps = 4;
  run.adjust = [](TrainerOptions& o) {
    o.loss_scaler.loss_scale = 1024;
    o.lr = [](uint64_t step) { return step == 2 ? 1e30 : 1e-3; };
  };
  try {
    run_tiny(run);
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), base::ErrorKind::numerics);
    EXPECT_NE(std::string(error.what()).find("step 3"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("bf16.enabled"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sluice::engine
