// Every config that the project ships reads without an error.
#include <gtest/gtest.h>

#include <filesystem>

#include "configs/read_config.h"
#include "tests/paths.h"

namespace sluice::configs {
namespace {

TEST(Recipes, AllRead) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(source_dir() / "configs")) {
    if (entry.path().extension() != ".json") continue;
    EXPECT_NO_THROW(read_config(entry.path())) << entry.path();
    ++count;
  }
  EXPECT_GT(count, 0);
}

TEST(Recipes, SmolLm2OnNvme) {
  const RunConfig c =
      read_config(source_dir() / "configs/smollm2-135m-nvme.json");
  EXPECT_EQ(c.zero_optimization.offload_param.device, offload::Tier::nvme);
  EXPECT_EQ(c.zero_optimization.offload_optimizer.device, offload::Tier::nvme);
  EXPECT_EQ(c.storage.durable, offload::Durable::step);
  EXPECT_EQ(c.train_batch_size, 4u);
  EXPECT_EQ(c.run.dir, "runs/smollm2-135m-nvme");
  EXPECT_EQ(c.scheduler.total_num_steps, c.steps);
}

}  // namespace
}  // namespace sluice::configs
