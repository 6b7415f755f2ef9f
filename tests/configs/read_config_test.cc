#include "configs/read_config.h"

#include <gmock/gmock.h>

#include "configs/explain.h"
#include "tests/configs/sample.h"

namespace sluice::configs {
namespace {

using offload::Durable;
using offload::Tier;

TEST(ReadConfig, ValuesAndDefaults) {
  const RunConfig c = sample();
  EXPECT_EQ(c.model.path, "models/tiny");
  EXPECT_EQ(c.data.sequence_length, 64u);
  EXPECT_EQ(c.steps, 10u);
  EXPECT_EQ(c.optimizer.lr, 1e-4);
  EXPECT_EQ(c.zero_optimization.offload_param.device, Tier::cpu);
  EXPECT_EQ(c.zero_optimization.offload_optimizer.device, Tier::nvme);
  // Defaults that differ from DeepSpeed's, and some of ours.
  EXPECT_EQ(c.gradient_clipping, 1.0);
  EXPECT_EQ(c.aio.block_size, 4u << 20);
  EXPECT_EQ(c.aio.queue_depth, 8u);
  EXPECT_TRUE(c.bf16);
  EXPECT_EQ(c.schema(), offload::Schema::bf16);
  EXPECT_EQ(c.storage.tile, 2097152u);
  EXPECT_EQ(c.model.loss_chunk, 512u);
  EXPECT_EQ(c.scheduler.warmup_type, WarmupCurve::linear);
  EXPECT_EQ(c.scheduler.type, SchedulerType::none);
  EXPECT_FALSE(c.execution.device_slots);
  EXPECT_FALSE(c.memory.gpu.has_value());
}

TEST(ReadConfig, OriginsNameTheLine) {
  const RunConfig c = sample({"run.seed=7"});
  EXPECT_EQ(origin_of(c, "steps").text, "dir/sample.json:4");
  EXPECT_EQ(origin_of(c, "optimizer.params.lr").text, "dir/sample.json:7");
  EXPECT_EQ(origin_of(c, "run.seed").text, "--set");
  EXPECT_EQ(origin_of(c, "gradient_clipping").text, "default");
  EXPECT_EQ(origin_of(c, "train_batch_size").kind, Origin::Kind::derived);
  EXPECT_EQ(origin_of(c, "storage.durable").text, "derived: the state is on \"nvme\"");
}

TEST(ReadConfig, SetWinsAndTheLastOneOfAll) {
  EXPECT_EQ(sample({"steps=11", "steps=12"}).steps, 12u);
  const RunConfig c = sample(
      {"optimizer={\"params\": {\"lr\": 0.5, \"betas\": [0.8, 0.9]}}", "model.trainable=[\"a.*\",\"b\"]"});
  EXPECT_EQ(c.optimizer.lr, 0.5);
  EXPECT_THAT(c.optimizer.betas, testing::ElementsAre(0.8, 0.9));
  EXPECT_THAT(c.model.trainable, testing::ElementsAre("a.*", "b"));
}

TEST(ReadConfig, SetTakesBareWords) {
  const RunConfig c =
      sample({"run.dir=2024", "model.path=true", "memory.gpu=700MiB", "execution.keep_graphs=all",
              "execution.keep_weights=4", "model.trainable=*mlp*", "data.eval=a=b.tokens"});
  EXPECT_EQ(c.run.dir, "2024");
  EXPECT_EQ(c.model.path, "true");
  EXPECT_EQ(c.memory.gpu, 700u << 20);
  EXPECT_EQ(c.execution.keep_graphs, kAllLayers);
  EXPECT_EQ(c.execution.keep_weights, 4u);
  EXPECT_THAT(c.model.trainable, testing::ElementsAre("*mlp*"));
  EXPECT_EQ(c.data.eval, "a=b.tokens");
}

TEST(ReadConfig, NullGoesBackToTheDefault) {
  EXPECT_FALSE(sample({"zero_optimization=null"}).zero_optimization.offload_param.device.has_value());
  EXPECT_EQ(sample({"data.sequence_length=null"}).data.sequence_length, 1024u);
  EXPECT_EQ(sample({"steps=null", "epochs=1.5"}).epochs, 1.5);
}

TEST(ReadConfig, OffloadSectionsThatAreMissingMeanNone) {
  for (const char* zero : {"zero_optimization={}", "zero_optimization.stage=3"}) {
    const RunConfig c = sample({"zero_optimization=null", zero});
    EXPECT_EQ(c.zero_optimization.offload_param.device, Tier::none) << zero;
    EXPECT_EQ(c.zero_optimization.offload_optimizer.device, Tier::none) << zero;
    EXPECT_EQ(c.storage.durable, Durable::checkpoint) << zero;
  }
}

TEST(ReadConfig, ReadingNeedsOnlyAModel) {
  EXPECT_EQ(parse_config(R"({"model": {"path": "m"}})", "c.json", {.purpose = Purpose::reading}).model.path,
            "m");
}

TEST(ReadConfig, Fp32) {
  const RunConfig c = sample({"bf16.enabled=false"});
  EXPECT_EQ(c.schema(), offload::Schema::fp32);
  EXPECT_EQ(c.communication_data_type, gpu::WireType::fp32);
  EXPECT_EQ(sample({"communication_data_type=fp32"}).communication_data_type, gpu::WireType::fp32);
}

TEST(ReadConfig, Fp16) {
  const RunConfig c = sample({"bf16=null", "fp16.enabled=true"});
  EXPECT_EQ(c.schema(), offload::Schema::fp16);
  EXPECT_EQ(c.communication_data_type, gpu::WireType::fp16);
  EXPECT_FALSE(c.bf16);
  EXPECT_EQ(c.origins.at("bf16.enabled").text, "derived: fp16.enabled");
  // DeepSpeed's own defaults
  EXPECT_EQ(c.fp16.loss_scale, 0);
  EXPECT_EQ(c.fp16.initial_scale_power, 16u);
  EXPECT_EQ(c.fp16.loss_scale_window, 1000u);
  EXPECT_EQ(c.fp16.hysteresis, 2u);
  EXPECT_FALSE(c.fp16.consecutive_hysteresis);
  EXPECT_EQ(c.fp16.min_loss_scale, 1);
  EXPECT_EQ(sample({"bf16.enabled=false", "fp16.enabled=true", "communication_data_type=bf16"}).communication_data_type,
            gpu::WireType::bf16);
}

}  // namespace
}  // namespace sluice::configs
