// Every config that the project ships reads without an error.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "configs/read_config.h"
#include "tests/paths.h"

namespace sluice::configs {
namespace {

// Plain DeepSpeed configs, as one finds them: to be imported, not read.
bool is_deepspeeds(const std::filesystem::path& file) { return file.parent_path().filename() == "zero"; }

TEST(Recipes, AllRead) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(source_dir() / "configs")) {
    if (entry.path().extension() != ".json" || is_deepspeeds(entry.path())) continue;
    EXPECT_NO_THROW(read_config(entry.path())) << entry.path();
    ++count;
  }
  EXPECT_GT(count, 0);
}

TEST(Recipes, DeepspeedConfigsOfGpt2) {
  const auto import = [](uint64_t stage, const std::string& more, Purpose purpose) {
    const auto file = source_dir() / fmt::format("configs/zero/gpt2-stage{}.json", stage);
    const std::string own = fmt::format(R"({{"deepspeed": "{}", {}}})", file.string(), more);
    return parse_config(own, "own.json", {.purpose = purpose, .world = 2});
  };
  for (const uint64_t stage : {1, 2, 3}) {
    const std::string job = R"("model": {"path": "m"}, "data": {"train": "t"}, "steps": 500)";
    const RunConfig c = import(stage, job, Purpose::training);
    EXPECT_EQ(c.zero_optimization.stage, stage);
    EXPECT_EQ(c.run.world, 2u);
    EXPECT_EQ(c.micro_batch(), 2u);  // 8 samples over 2 ranks, 2 at a time
    EXPECT_EQ(c.accumulation(), 2u);
    EXPECT_EQ(c.schema(), offload::Schema::fp16);
    EXPECT_EQ(c.fp16.loss_scale, 0);
    EXPECT_EQ(c.zero_optimization.reduce_bucket_size, 200'000'000u);
    EXPECT_EQ(c.zero_optimization.offload_param.device, offload::Tier::none);
    EXPECT_EQ(c.zero_optimization.offload_optimizer.device, offload::Tier::none);
    EXPECT_EQ(c.optimizer.lr, 5e-5);
    // Each key either does something or is answered with why not.
    std::string notes;
    for (const std::string& note : c.notes) notes += note + "\n";
    for (const char* key : {"allgather_partitions", "allgather_bucket_size", "overlap_comm", "reduce_scatter", "contiguous_gradients"})
      EXPECT_NE(notes.find(fmt::format("zero_optimization.{} has no effect: ", key)), std::string::npos) << key << "\n" << notes;
    EXPECT_NO_THROW(import(stage, R"("model": {"family": "gpt2", "sizes": "gpt2"})", Purpose::planning));
  }
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
