// What a step of a rank is made of.
#include "engine/train_source.h"

#include <gtest/gtest.h>

#include "tests/engine/tiny_run.h"

namespace sluice::engine {
namespace {

// By this index dropout tells micro-batches apart, and it is the same whoever computes them.
TEST(TrainSource, MicroBatchesAreNumberedOverAllRanks) {
  const TinyRun run{.accumulation = 3};
  for (const uint32_t world : {1u, 2u}) {
    std::vector<uint64_t> indices;
    for (uint32_t rank = 0; rank < world; ++rank) {
      TrainerOptions options = tiny_options(run, "unused");
      options.model.world = world;
      options.plan.rank = rank;
      const TokenFile file = TokenFile::open(options.train_tokens);
      const Packing data(file, PackingOptions{.seed = options.seed, .sequence = options.sequence, .shuffle = options.shuffle});
      const TrainerEvents events;
      TrainSource source(options, data, {}, events);
      source.start({}, 5, {});
      for (const uint64_t period : {0, 3}) {
        Step step;
        ASSERT_TRUE(source.begin(period, step));
        ASSERT_EQ(step.micro.size(), 3u);
        if (period == 3)
          for (const HostMicroBatch& micro : step.micro) indices.push_back(micro.index);
      }
    }
    for (size_t i = 0; i < indices.size(); ++i) EXPECT_EQ(indices[i], i) << world << " ranks";
    EXPECT_EQ(indices.size(), 3 * world);
  }
}

// Steps 1 to 3 by four ranks and 4 to 6 by two are made of the tokens that one rank has: whoever goes on takes up the samples where they were.
TEST(TrainSource, AnotherNumberOfRanksGoesOnWithTheSameSamples) {
  TinyRun run{.accumulation = 4};
  run.micro_batch = 1;
  const TokenFile file = TokenFile::open(tiny_options(run, "unused").train_tokens);
  // Of `steps` steps after meta, in rank order; moves meta on.
  const auto tokens = [&](uint32_t world, uint64_t steps, offload::StepMeta& meta) {
    std::vector<std::vector<int64_t>> all(steps);
    offload::StepMeta end;
    for (uint32_t rank = 0; rank < world; ++rank) {
      TrainerOptions options = tiny_options(run, "unused");
      options.accumulation = run.accumulation / world;
      options.model.world = world;
      options.plan.rank = rank;
      const Packing data(file, PackingOptions{.seed = options.seed, .sequence = options.sequence, .shuffle = options.shuffle});
      const TrainerEvents events;
      TrainSource source(options, data, meta, events);
      source.start(meta, meta.step + steps, {});
      for (uint64_t i = 0; i < steps; ++i) {
        Step step;
        EXPECT_TRUE(source.begin(meta.step + i, step));
        for (const HostMicroBatch& micro : step.micro) all[i].insert(all[i].end(), micro.ids.begin(), micro.ids.end());
        end = step.meta;
      }
    }
    meta = end;
    return all;
  };
  offload::StepMeta one, several;
  const auto expected = tokens(1, 6, one);
  auto got = tokens(4, 3, several);
  for (auto& step : tokens(2, 3, several)) got.push_back(std::move(step));
  EXPECT_EQ(got, expected);
  EXPECT_EQ(several.samples, one.samples);
}

}  // namespace
}  // namespace sluice::engine
