// Several ranks, as threads of one process: stages, tiers and overlaps give the same bits; the bytes are those of the formula.
#include <gtest/gtest.h>

#include "tests/engine/tiny_run.h"

namespace sluice::engine {
namespace {

using offload::Durable;
using offload::Placement;
using offload::Tier;

struct Choice {
  uint32_t stage;
  Tier weights, state;
  Durable durable;
  Placement placement = Placement::none;
  uint32_t resident_blocks = 0;
};

TinyRun run_of(uint32_t world, const Choice& c) {
  TinyRun run;
  run.world = world;
  run.zero_stage = c.stage;
  run.weights = c.weights;
  run.state = c.state;
  run.durable = c.durable;
  run.placement = c.placement;
  run.resident_blocks = c.resident_blocks;
  run.clip = kTinyClip;
  run.micro_batch = 1;
  run.accumulation = 2;
  run.eval_every = 3;
  return run;
}

const std::vector<Choice> kChoices{
    {0, Tier::none, Tier::none, Durable::checkpoint},
    {0, Tier::none, Tier::cpu, Durable::checkpoint, Placement::spread},
    {0, Tier::cpu, Tier::cpu, Durable::checkpoint, Placement::forward},
    {1, Tier::none, Tier::cpu, Durable::checkpoint},
    {1, Tier::none, Tier::none, Durable::checkpoint},
    {1, Tier::none, Tier::nvme, Durable::step, Placement::backward},
    {2, Tier::none, Tier::none, Durable::checkpoint},
    {2, Tier::none, Tier::cpu, Durable::step, Placement::spread},
    {2, Tier::none, Tier::nvme, Durable::step, Placement::forward},
    {3, Tier::none, Tier::none, Durable::checkpoint},
    {3, Tier::none, Tier::cpu, Durable::checkpoint, Placement::forward},
    {3, Tier::none, Tier::nvme, Durable::step, Placement::backward},
    {3, Tier::cpu, Tier::cpu, Durable::step, Placement::spread},
    {3, Tier::cpu, Tier::nvme, Durable::step},
    {3, Tier::nvme, Tier::cpu, Durable::checkpoint, Placement::forward},
    {3, Tier::nvme, Tier::nvme, Durable::step},
    {3, Tier::nvme, Tier::nvme, Durable::step, Placement::spread},
    {3, Tier::nvme, Tier::nvme, Durable::none, Placement::forward},
    {0, Tier::cpu, Tier::cpu, Durable::checkpoint, Placement::none, 2},
    {1, Tier::none, Tier::cpu, Durable::checkpoint, Placement::forward, 1},
    {2, Tier::none, Tier::nvme, Durable::checkpoint, Placement::none, 3},
    {3, Tier::cpu, Tier::cpu, Durable::checkpoint, Placement::forward, 2},
    {3, Tier::nvme, Tier::nvme, Durable::checkpoint, Placement::forward, 1},
};

class Ranks : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Worlds, Ranks, testing::Values(2u, 4u));

TEST_P(Ranks, EveryStageTierAndOverlapGivesTheSameBits) {
  for (const char* model : {"tied", "untied"}) {
    std::optional<TinyResult> expected;
    for (const Choice& choice : kChoices) {
      SCOPED_TRACE(fmt::format("{} stage {} {} {} {}", model, choice.stage, to_string(choice.weights), to_string(choice.state),
                               to_string(choice.placement)));
      TinyRun run = run_of(GetParam(), choice);
      run.model = model;
      const TinyResult got = run_tiny(run);
      if (!expected) expected = got;
      EXPECT_EQ(got.losses, expected->losses);
      EXPECT_EQ(got.norms, expected->norms);
      EXPECT_EQ(got.eval_losses, expected->eval_losses);
      EXPECT_EQ(got.digest.weights, expected->digest.weights);
      EXPECT_EQ(got.digest.state, expected->digest.state);
      EXPECT_LE(got.device_peak, got.device_planned);
      if (HasFailure()) return;
    }
  }
}

// The norms alone are so small that the first rank has them all: the others compute, exchange, and have nothing to update or to write.
TEST(RankShards, ARankMayOwnNothingThatIsTrained) {
  for (const uint32_t stage : {1u, 3u}) {
    std::optional<TinyResult> expected;
    for (const Durable durable : {Durable::checkpoint, Durable::step}) {
      TinyRun run = run_of(2, {stage, Tier::none, Tier::cpu, durable, Placement::forward});
      run.trainable = {"*norm*"};
      const TinyResult got = run_tiny(run);
      EXPECT_EQ(got.losses.size(), run.steps);
      if (!expected) expected = got;
      EXPECT_EQ(got.losses, expected->losses);
      EXPECT_EQ(got.eval_losses, expected->eval_losses);
      EXPECT_EQ(got.digest.weights, expected->digest.weights);
    }
  }
}

// Data parallel exchanges 2 M words a step, stages 1 and 2 the same, stage 3 3 M (M: what other ranks have of the model).
TEST_P(Ranks, BytesOfCollectivesAreThoseOfTheFormula) {
  const uint32_t world = GetParam();
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    const auto traffic = [&](uint64_t steps) {
      TinyRun run = run_of(world, {stage, Tier::none, Tier::none, Durable::checkpoint});
      run.model = "untied";
      run.steps = steps;
      run.eval_every = 0;
      return run_tiny(run);
    };
    const TinyResult two = traffic(2), four = traffic(4);  // loading exchanges too, once
    const TinyRun run = run_of(world, {stage, Tier::none, Tier::none, Durable::checkpoint});
    TrainerOptions options = tiny_options(run, "unused");
    options.model.path = options.model.path.parent_path().parent_path() / "untied" / "model";
    const offload::Layout layout(describe(read_hf_config(options.model.path), options.model), options.model.schema, options.model.tile, world);
    uint64_t all = 0, again = 0;  // elements; those that a backward gathers a second time
    for (const auto& block : layout.blocks()) {
      all += block.trainable;
      if (block.kind == offload::BlockKind::layer) again += block.trainable;
    }
    uint64_t gathered = 0, reduced = 0, sent = 0, planned = 0;
    for (uint32_t r = 0; r < world; ++r) {
      gathered += (four.traffic[r].gather_received - two.traffic[r].gather_received) / 2;
      reduced += (four.traffic[r].reduce_received - two.traffic[r].reduce_received) / 2;
      sent += (four.traffic[r].gather_sent + four.traffic[r].reduce_sent - two.traffic[r].gather_sent - two.traffic[r].reduce_sent) / 2;
      planned += four.planned_comm[r];
    }
    SCOPED_TRACE(fmt::format("stage {}, {} ranks", stage, world));
    EXPECT_EQ(reduced, 2 * all * (world - 1));
    EXPECT_EQ(gathered, 2 * (stage == 3 ? all + again : all) * (world - 1));
    EXPECT_EQ(sent, gathered + reduced);
    EXPECT_EQ(planned, gathered + reduced);
  }
}

// With the same global batch: sums are made in another order, and gradients are rounded to the wire type before they are summed.
TEST(RankNumbers, OtherWorldsAgreeToRounding) {
  const auto losses = [](const char* model, uint32_t world, offload::Schema schema) {
    TinyRun run = run_of(world, {3, Tier::cpu, Tier::cpu, Durable::checkpoint});
    run.model = model;
    run.schema = schema;
    run.accumulation = 4 / world;
    run.steps = 8;
    return run_tiny(run).losses;
  };
  const struct {
    const char* model;  // gpt2_hub: its dropout is that of the micro-batch, whichever rank has it
    offload::Schema schema;
    double tolerance;
  } cases[] = {{"tied", offload::Schema::fp32, 2e-6}, {"tied", offload::Schema::bf16, 2e-3}, {"gpt2_hub", offload::Schema::fp32, 2e-6}};
  for (const auto& [model, schema, tolerance] : cases) {
    const std::vector<double> one = losses(model, 1, schema);
    for (uint32_t world : {2u, 4u}) {
      const std::vector<double> several = losses(model, world, schema);
      ASSERT_EQ(several.size(), one.size());
      for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(several[i], one[i], tolerance * one[i]) << "step " << i + 1 << ", " << world << " ranks";
    }
  }
}

// A store of four ranks, opened by two: each step sees the samples that it would have seen, so its loss is the same to rounding.
TEST(RankNumbers, AReshardedRunGoesOnWithTheSameLosses) {
  TinyRun run = run_of(1, {3, Tier::cpu, Tier::nvme, Durable::step, Placement::forward});
  run.schema = offload::Schema::fp32;
  run.accumulation = 4;
  run.steps = 8;
  const TinyResult one = run_tiny(run);
  run.world = 4;
  run.accumulation = 1;
  run.stops = {3, 6};
  run.worlds = {2, 4};
  const TinyResult several = run_tiny(run);
  ASSERT_EQ(several.losses.size(), one.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(several.losses[i], one.losses[i], 2e-6 * one.losses[i]) << "step " << i + 1;
}

// What stage 3 reads from its store is a rank's shard and no more: all ranks together read what one would.
TEST_P(Ranks, ReadTheirOwnShardsOnly) {
  const uint32_t world = GetParam();
  const auto read = [](uint32_t ranks, uint64_t steps) {
    TinyRun run = run_of(ranks, {3, Tier::nvme, Tier::nvme, Durable::step});
    run.steps = steps;
    run.eval_every = 0;
    return run_tiny(run);
  };
  const TinyResult two = read(world, 2), four = read(world, 4);  // opening reads too, once
  const uint64_t one = read(1, 2).planned_read.at(0);
  uint64_t all = 0;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const uint64_t step = (four.disk_read[rank] - two.disk_read[rank]) / 2;
    EXPECT_EQ(step, four.planned_read[rank]) << "rank " << rank;
    EXPECT_LE(step, one / world * 11 / 10) << "rank " << rank;
    all += step;
  }
  EXPECT_LE(all, one * 11 / 10);
  EXPECT_GE(all, one);
}

}  // namespace
}  // namespace sluice::engine
