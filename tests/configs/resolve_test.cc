#include "configs/resolve.h"

#include <gmock/gmock.h>

#include "configs/explain.h"
#include "tests/configs/sample.h"

namespace sluice::configs {
namespace {

using offload::Durable;
using offload::Tier;
using testing::ElementsAre;

TEST(Resolve, AnyTwoBatchKeysGiveTheThird) {
  struct Case {
    std::vector<std::string> set;
    uint64_t total, micro, accumulation;
  };
  const std::string total = "train_batch_size=", micro = "train_micro_batch_size_per_gpu=",
                    steps = "gradient_accumulation_steps=";
  const Case cases[] = {
      {{}, 6, 2, 3},
      {{micro + "null", total + "12"}, 12, 4, 3},
      {{steps + "null", total + "12"}, 12, 2, 6},
      {{steps + "null"}, 2, 2, 1},
      {{micro + "null", steps + "null", total + "8"}, 8, 8, 1},
      {{total + "6"}, 6, 2, 3},
      {{"run.world=4"}, 24, 2, 3},
      {{"run.world=4", steps + "null", total + "16"}, 16, 2, 2},
  };
  for (const Case& c : cases) {
    const RunConfig config = sample(c.set);
    EXPECT_EQ(config.train_batch_size, c.total);
    EXPECT_EQ(config.micro_batch(), c.micro);
    EXPECT_EQ(config.accumulation(), c.accumulation);
  }
}

TEST(Resolve, RunFolderAndStore) {
  RunConfig c = sample();
  EXPECT_EQ(c.run.dir, "runs/sample");
  EXPECT_THAT(c.storage.paths, ElementsAre("runs/sample/store"));
  c = sample({"run.dir=/r", "zero_optimization.offload_optimizer.nvme_path=/n"});
  EXPECT_THAT(c.storage.paths, ElementsAre("/n"));
  c = sample({"zero_optimization.offload_optimizer.nvme_path=/n",
              "zero_optimization.offload_param.nvme_path=/ignored: on cpu"});
  EXPECT_THAT(c.storage.paths, ElementsAre("/n"));
  c = sample({"zero_optimization.offload_optimizer.nvme_path=/n", "storage.paths=[\"/s\"]"});
  EXPECT_THAT(c.storage.paths, ElementsAre("/s"));
  EXPECT_THAT(sample({"storage.paths=[\"/b\",\"/a\"]"}).storage.paths, ElementsAre("/b", "/a"));
  EXPECT_FALSE(sample({"storage.paths=[\"/b\",\"/a\"]", "storage.drive_rates=auto"}).storage.drive_rates);
  EXPECT_THAT(*sample({"storage.paths=[\"/b\",\"/a\"]", "storage.drive_rates=[\"3GB/s\",1500000000]"}).storage.drive_rates, ElementsAre(3e9, 1.5e9));
}

TEST(Resolve, SevenPairsOfTiersAreLegal) {
  int legal = 0;
  for (const char* weights : {"none", "cpu", "nvme"})
    for (const char* state : {"none", "cpu", "nvme"}) {
      try {
        const RunConfig c = sample({"zero_optimization.offload_param.device=" + std::string(weights),
                                    "zero_optimization.offload_optimizer.device=" + std::string(state)});
        EXPECT_EQ(c.storage.durable, std::string(state) == "nvme" ? Durable::step : Durable::checkpoint);
        ++legal;
      } catch (const base::Error&) {
        EXPECT_STREQ(state, "none");
        EXPECT_STRNE(weights, "none");
      }
    }
  EXPECT_EQ(legal, 7);
}

TEST(Resolve, ResidentBlocksAreCommittedAtCheckpoints) {
  EXPECT_EQ(sample({}).execution.resident_blocks, 0u);
  const std::vector<std::string> tiers{"zero_optimization.offload_param.device=nvme", "zero_optimization.offload_optimizer.device=nvme"};
  EXPECT_EQ(sample(tiers).storage.durable, Durable::step);
  std::vector<std::string> some = tiers, open = tiers;
  some.push_back("execution.resident_blocks=3");
  open.push_back("execution.resident_blocks=auto");
  EXPECT_EQ(sample(some).storage.durable, Durable::checkpoint);
  RunConfig c = sample(open);
  EXPECT_EQ(c.storage.durable, Durable::checkpoint);
  EXPECT_FALSE(c.execution.resident_blocks.has_value());
  choose_resident_blocks(&c, 5, "a test");
  choose_resident_blocks(&c, 6, "too late");
  EXPECT_EQ(c.execution.resident_blocks, 5u);
  EXPECT_EQ(origin_of(c, "execution.resident_blocks").text, "chosen: a test");
}

// What is resolved is stored with the run, and read again.
TEST(Resolve, AShareOfBlocksGoesWhenTheDeviceHoldsAll) {
  RunConfig c = sample({"zero_optimization=null", "execution.resident_blocks=3"});
  choose_tiers(&c, Tier::none, Tier::none, "a test");
  EXPECT_EQ(c.execution.resident_blocks, 0u);
  EXPECT_EQ(origin_of(c, "execution.resident_blocks").kind, Origin::Kind::chosen);
  EXPECT_NO_THROW(parse_config(resolved_json(c).dump(), "stored.json"));
  c = sample({"zero_optimization=null", "execution.resident_blocks=3"});
  choose_tiers(&c, Tier::none, Tier::cpu, "a test");
  EXPECT_EQ(c.execution.resident_blocks, 3u);
}

TEST(Resolve, TiersLeftOpenAreChosenOnce) {
  RunConfig c = sample({"zero_optimization=null"});
  EXPECT_FALSE(c.storage.durable.has_value());
  choose_tiers(&c, Tier::cpu, Tier::nvme, "the state needs 12 GiB, 8 GiB are free");
  EXPECT_EQ(c.zero_optimization.offload_param.device, Tier::cpu);
  EXPECT_EQ(c.zero_optimization.offload_optimizer.device, Tier::nvme);
  EXPECT_EQ(c.storage.durable, Durable::step);
  EXPECT_EQ(origin_of(c, "zero_optimization.offload_param.device").text,
            "chosen: the state needs 12 GiB, 8 GiB are free");
  choose_tiers(&c, Tier::none, Tier::none, "too late");
  EXPECT_EQ(c.zero_optimization.offload_param.device, Tier::cpu);

  RunConfig half = sample({"zero_optimization.offload_param.device=auto"});
  choose_tiers(&half, Tier::nvme, Tier::cpu, "test");
  EXPECT_EQ(half.zero_optimization.offload_param.device, Tier::nvme);
  EXPECT_EQ(half.zero_optimization.offload_optimizer.device, Tier::nvme);  // as given
}

TEST(Resolve, ChosenTiersAreChecked) {
  RunConfig c = sample({"zero_optimization=null"});
  EXPECT_THAT(config_error([&] { choose_tiers(&c, Tier::nvme, Tier::none, "bad"); }),
              testing::HasSubstr("chosen: bad"));
}

TEST(Resolve, EpochsBecomeSteps) {
  RunConfig c = sample(
      {"steps=null", "epochs=2", "scheduler.type=WarmupCosineLR", "scheduler.params.warmup_num_steps=5"});
  EXPECT_FALSE(c.scheduler.total_num_steps.has_value());
  choose_steps(&c, 40, "2 epochs of 20 steps");
  EXPECT_EQ(c.steps, 40u);
  EXPECT_EQ(c.scheduler.total_num_steps, 40u);
  EXPECT_EQ(origin_of(c, "steps").text, "chosen: 2 epochs of 20 steps");

  RunConfig small = sample(
      {"steps=null", "epochs=2", "scheduler.type=WarmupCosineLR", "scheduler.params.warmup_num_steps=5"});
  EXPECT_THAT(config_error([&] { choose_steps(&small, 5, "tiny data"); }),
              testing::HasSubstr("must end before"));
}

TEST(Resolve, ZeroStepsIsARun) {
  EXPECT_EQ(sample({"steps=0", "scheduler.type=WarmupCosineLR"}).steps, 0u);
}

TEST(Resolve, TheSchedulersRateStandsForTheOptimizers) {
  const RunConfig c = sample(
      {"optimizer.params.lr=null", "scheduler={\"type\":\"WarmupLR\",\"params\":{\"warmup_max_lr\":0.5}}"});
  EXPECT_EQ(c.optimizer.lr, 0.5);
  EXPECT_EQ(origin_of(c, "optimizer.params.lr").text, "derived: scheduler.params.warmup_max_lr");
}

TEST(Resolve, AutoHasOneAnswerForNow) {
  const RunConfig c = sample(
      {"execution.overlap=auto", "execution.boundaries=auto", "memory.pinned=auto"});
  EXPECT_EQ(c.execution.overlap, offload::Placement::forward);
  EXPECT_EQ(c.execution.boundaries, Boundaries::gpu);
  EXPECT_EQ(origin_of(c, "execution.overlap").kind, Origin::Kind::derived);
}

TEST(Resolve, APlanTakesSizesWithoutFilesAndWhatDoesNotRunYet) {
  const RunConfig config = parse_config(R"({"model": {"sizes": "Llama-3.1-8B"}, "machine": {"device": "cuda", "compute": "20TFLOP/s"}})", "dir/p.json",
                                        {.purpose = Purpose::planning});
  EXPECT_EQ(config.model.sizes, "Llama-3.1-8B");
  EXPECT_EQ(config.machine.compute, 20e12);
  RunConfig open = config;  // choices that follow do not bring the refusals back
  choose_tiers(&open, offload::Tier::nvme, offload::Tier::nvme, "a test");
  EXPECT_EQ(open.machine.device, DeviceType::cuda);
  EXPECT_NE(config_error([] { parse_config("{}", "dir/p.json", {.purpose = Purpose::planning}); }).find("model.path is missing"), std::string::npos);
}

TEST(Resolve, LinksAndWearAreRead) {
  const RunConfig config = sample({"machine.links.disk_read=2GB/s", "storage.tbw=600TB", "goals.step_seconds=3"});
  EXPECT_EQ(config.machine.links.disk_read, 2e9);
  EXPECT_EQ(config.machine.links.h2d, std::nullopt);
  EXPECT_EQ(config.storage.tbw, 600'000'000'000'000u);
  EXPECT_EQ(config.goals.step_seconds, 3);
}

TEST(Resolve, TheDeviceIsChosenByTheMachineUnlessGiven) {
  RunConfig open = sample({"machine.device=auto"});
  EXPECT_FALSE(open.machine.device);
  choose_device(&open, DeviceType::cuda, "a GPU");
  EXPECT_EQ(open.machine.device, DeviceType::cuda);
  EXPECT_EQ(origin_of(open, "machine.device").text, "chosen: a GPU");
  RunConfig given = sample({"machine.device=cpu"});
  choose_device(&given, DeviceType::cuda, "a GPU");
  EXPECT_EQ(given.machine.device, DeviceType::cpu);
}

TEST(Resolve, KernelsThatVaryNeedAGpu) {
  RunConfig c = sample({"run.deterministic=false"});
  EXPECT_THROW(choose_device(&c, DeviceType::cpu, "no GPU"), base::Error);
  EXPECT_FALSE(sample({"run.deterministic=false", "machine.device=cuda"}).run.deterministic);
}

}  // namespace
}  // namespace sluice::configs
