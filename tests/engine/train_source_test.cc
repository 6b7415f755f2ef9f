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

}  // namespace
}  // namespace sluice::engine
