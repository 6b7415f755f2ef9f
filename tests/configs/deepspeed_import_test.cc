#include "configs/deepspeed_import.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "configs/resolve.h"
#include "tests/configs/sample.h"

namespace sluice::configs {
namespace {

using offload::Tier;
using testing::Contains;
using testing::HasSubstr;

// The kind of config found in tutorials, with what people leave in it.
constexpr const char* kTutorial = R"({
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": 4.0,   // floats for counts
  "gradient_accumulation_steps": 2,
  "steps_per_print": 2000,
  "wall_clock_breakdown": false,
  "optimizer": {"type": "adamw", "params": {"lr": "5e-5", "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7, "torch_adam": true}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 5e-5, "warmup_num_steps": 100,
                                                    "total_num_steps": 1e3, "last_batch_iteration": -1}},
  "fp16": {"enabled": false, "loss_scale": 0, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1},
  "bfloat16": {"enabled": "true"},  # old name
  "gradient_clipping": "auto",
  "zero_allow_untested_optimizer": true,
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "pin_memory": true, "buffer_count": 4, "ratio": 1.0},
    "offload_param": {"device": "cpu", "pin_memory": true},
    "overlap_comm": true, "contiguous_gradients": true, "reduce_bucket_size": 2e8, "sub_group_size": 1e9,
    "stage3_max_live_parameters": 1e9, "stage3_gather_16bit_weights_on_model_save": true, /* and a last comma */
  },
  "aio": {"block_size": 1048576, "queue_depth": 16.0, "thread_count": 1, "single_submit": false, "overlap_events": true}
})";

constexpr const char* kJob = R"("model": {"path": "m"}, "data": {"train": "t"}, "steps": 500)";

struct ImportTest : testing::Test {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("import_" + std::to_string(getpid()));
  void SetUp() override { std::filesystem::create_directories(folder); }
  void TearDown() override { std::filesystem::remove_all(folder); }
  // Our own config with the job and `own`, importing `deepspeed` from a file beside it.
  RunConfig import(const std::string& deepspeed, const std::string& own = "",
                   std::vector<std::string> set = {}) {
    std::ofstream(folder / "ds.json") << deepspeed;
    const std::string text =
        fmt::format("{{\"deepspeed\": \"ds.json\", {}{}{}}}", kJob, own.empty() ? "" : ", ", own);
    return parse_config(text, folder / "own.json", {.set = std::move(set)});
  }
};

TEST_F(ImportTest, TutorialConfig) {
  const RunConfig c = import(kTutorial);
  EXPECT_EQ(c.train_batch_size, 8u);
  EXPECT_EQ(c.optimizer.type, OptimizerType::adamw);
  EXPECT_EQ(c.optimizer.lr, 5e-5);
  EXPECT_THAT(c.optimizer.betas, testing::ElementsAre(0.8, 0.999));
  EXPECT_EQ(c.scheduler.type, SchedulerType::warmup_decay);
  EXPECT_EQ(c.scheduler.total_num_steps, 1000u);
  EXPECT_TRUE(c.bf16);
  EXPECT_EQ(c.gradient_clipping, 1.0);
  EXPECT_EQ(c.zero_optimization.offload_optimizer.device, Tier::nvme);
  EXPECT_EQ(c.zero_optimization.offload_param.device, Tier::cpu);
  EXPECT_THAT(c.storage.paths, testing::ElementsAre("/local_nvme"));
  EXPECT_EQ(c.aio.block_size, 1u << 20);
  EXPECT_EQ(c.aio.queue_depth, 16u);
  EXPECT_EQ(origin_of(c, "aio.queue_depth").text, (folder / "ds.json").string() + ":21");
  EXPECT_EQ(origin_of(c, "steps").kind, Origin::Kind::file);
  for (const char* note :
       {"steps_per_print has no effect: run.log_every",
        "zero_optimization.overlap_comm has no effect: collectives always run beside",
        "zero_optimization.sub_group_size has no effect", "aio.thread_count has no effect",
        "zero_optimization.offload_param.pin_memory has no effect",
        "warmup_type is not given: linear here, log in DeepSpeed"})
    EXPECT_THAT(c.notes, Contains(HasSubstr(note)));
}

TEST_F(ImportTest, OwnKeysAndSetWin) {
  const RunConfig c = import(
      kTutorial,
      R"("optimizer": {"params": {"lr": 1e-3}}, "zero_optimization": {"offload_param": {"device": "nvme"}})",
      {"gradient_accumulation_steps=5"});
  EXPECT_EQ(c.optimizer.lr, 1e-3);
  EXPECT_EQ(c.optimizer.weight_decay, 3e-7);
  EXPECT_EQ(c.zero_optimization.offload_param.device, Tier::nvme);
  EXPECT_EQ(c.zero_optimization.offload_optimizer.device, Tier::nvme);
  EXPECT_EQ(c.accumulation(), 5u);
}

TEST_F(ImportTest, LionKeepsOneMoment) {
  const RunConfig c = import(R"({"train_batch_size": 8, "bf16": {"enabled": true}, "optimizer": {"type": "lion", "params": {"lr": 1e-5, "betas": [0.95, 0.98]}}})");
  EXPECT_EQ(c.optimizer.type, OptimizerType::lion);
  EXPECT_EQ(c.schema(), offload::Schema::bf16_lion);
  EXPECT_THAT(c.optimizer.betas, testing::ElementsAre(0.95, 0.98));
  const char* eps = R"({"train_batch_size": 8, "optimizer": {"type": "Lion", "params": {"lr": 1e-5, "eps": 1e-8}}})";
  EXPECT_THAT(config_error([&] { import(eps); }), HasSubstr("Lion has no such parameter"));
}

TEST_F(ImportTest, OwnKeysMendWhatDoesNotRun) {
  const char* amp = R"({"train_batch_size": 8, "optimizer": {"type": "Lamb", "params": {"lr": 1}}})";
  EXPECT_THAT(config_error([&] { import(amp); }), HasSubstr("optimizer.type"));
  EXPECT_EQ(import(amp, R"("optimizer": {"type": "AdamW"})").train_batch_size, 8u);
}

constexpr const char* kRest = R"("train_batch_size": 8, "optimizer": {"params": {"lr": 1}})";
std::string with(const std::string& keys) {
  return fmt::format("{{{}, {}}}", kRest, keys);
}

TEST_F(ImportTest, LossScalingHasDeepspeedsMeaning) {
  const char* fp16 = R"({"train_batch_size": 8, "optimizer": {"params": {"lr": 1}},
                         "fp16": {"enabled": true, "auto_cast": false, "loss_scale": 0.0, "initial_scale_power": 12,
                                  "loss_scale_window": 5e2, "hysteresis": "4", "consecutive_hysteresis": "true", "min_loss_scale": 2}})";
  const RunConfig c = import(fp16);
  EXPECT_EQ(c.schema(), offload::Schema::fp16);
  EXPECT_EQ(c.communication_data_type, gpu::WireType::fp16);
  EXPECT_EQ(c.fp16.loss_scale, 0);
  EXPECT_EQ(c.fp16.initial_scale_power, 12u);
  EXPECT_EQ(c.fp16.loss_scale_window, 500u);
  EXPECT_EQ(c.fp16.hysteresis, 4u);
  EXPECT_TRUE(c.fp16.consecutive_hysteresis);
  EXPECT_EQ(c.fp16.min_loss_scale, 2);
  EXPECT_THAT(c.notes, Contains(HasSubstr("fp16.auto_cast has no effect")));
  EXPECT_THAT(c.notes, testing::Not(Contains(HasSubstr("bf16.enabled is not given"))));
  EXPECT_THAT(c.notes, testing::Not(Contains(HasSubstr("moves the scheduler on"))));
  EXPECT_THAT(import(fp16, R"("scheduler": {"type": "WarmupLR"})").notes, Contains(HasSubstr("moves the scheduler on")));
  // One's own file may change it back.
  EXPECT_EQ(import(fp16, R"("fp16": {"enabled": false})").schema(), offload::Schema::bf16);
  EXPECT_THAT(config_error([&] { import(with(R"("fp16": {"enabled": true}, "bf16": {"enabled": true})")); }),
              HasSubstr("bf16.enabled is true too"));
  EXPECT_THAT(config_error([&] { import(with(R"("fp16": {"enabled": true, "fp16_master_weights_and_grads": true})")); }),
              HasSubstr("the master weights are exact fp32"));
}

TEST_F(ImportTest, OldNames) {
  RunConfig c = import(with(
      R"("zero_optimization": {"stage": 3, "cpu_offload": true, "cpu_offload_params": true, "cpu_offload_use_pin_memory": true})"));
  EXPECT_EQ(c.zero_optimization.offload_optimizer.device, Tier::cpu);
  EXPECT_EQ(c.zero_optimization.offload_param.device, Tier::cpu);
  c = import(with(R"("zero_optimization": {"stage": 3, "cpu_offload": false})"));
  EXPECT_EQ(c.zero_optimization.offload_optimizer.device, Tier::none);
  EXPECT_EQ(import(with(R"("zero_optimization": true)")).zero_optimization.stage, 1u);
  EXPECT_EQ(import(with(R"("zero_optimization": {"stage": 2, "reduce_bucket_size": 2e8})")).zero_optimization.reduce_bucket_size, 200'000'000u);
  EXPECT_FALSE(import(with(R"("bfloat16": {"enabled": false})")).bf16);
}

TEST_F(ImportTest, NothingIsGivenNothingIsSaid) {
  const RunConfig c = import(with(
      R"("bf16": {"enabled": true}, "scheduler": "auto", "zero_optimization": {"stage": 3, "offload_param": null})"));
  EXPECT_EQ(c.zero_optimization.offload_param.device, Tier::none);
  EXPECT_TRUE(c.notes.empty()) << c.notes.front();
}

TEST_F(ImportTest, DefaultsThatDifferAreTold) {
  const RunConfig c = import(with(R"("zero_optimization": {"overlap_comm": false})"));
  EXPECT_THAT(c.notes, Contains(HasSubstr("bf16.enabled is not given: true here")));
  EXPECT_THAT(c.notes, Contains(HasSubstr("stage is not given: 3 here, 0 in DeepSpeed")));
}

TEST_F(ImportTest, WhatWouldChangeTheResultIsRefused) {
  struct Case {
    const char *keys, *fragment;
  };
  const Case cases[] = {
      {R"("amp": {"enabled": true, "opt_level": "O1"})", "amp = {\"enabled\":true"},
      {R"("torch_autocast": {"enabled": true})", "autocast is not built"},
      {R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true})",
       "the master weights are exact fp32"},
      {R"("scheduler": {"type": "WarmupLR", "params": {"last_batch_iteration": 7}})", "allowed: -1"},
      {R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-5}})", "OneCycle is not built yet"},
      {R"("zero_optimization": {"stage": 3, "zero_quantized_weights": true})",
       "changes the result and is not built"},
      {R"("zero_optimization": {"stage": 3, "zenflow": {"topk_ratio": 0.1}})",
       "changes the result and is not built"},
      {R"("zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.3}})",
       "ratio = 0.3"},
      {R"("curriculum_learning": {"enabled": true})", "changes the result"},
      {R"("zero_optimization": {"stage": 3.5})", "an integer from 0 to 3"},
      {R"("zero_optimization": 3)", "a section of keys"},
      {R"("gradient_clipping": -1.0)", "a number from 0"},
      {R"("zero_optimization": {"stage": 3, "overlap_com": true})",
       "nearest known key is \"zero_optimization.overlap_comm\""},
      {R"("wall_clock_breakdwon": true)", "nearest known key is \"wall_clock_breakdown\""},
      {R"("model": {"path": "m"})", "unknown key \"model\""},  // ours, not DeepSpeed's
      {R"("amp": {"enabled": true}, "amp": {"enabled": false})", "given twice"},
  };
  for (const Case& c : cases)
    EXPECT_THAT(config_error([&] { import(with(c.keys)); }), HasSubstr(c.fragment)) << c.keys;
  EXPECT_THAT(config_error([&] { import(R"({"optimizer": {"type": "Lamb", "params": {"lr": 1}}})"); }),
              HasSubstr("\"Lion\""));
  EXPECT_THAT(config_error([&] { import(R"({"optimizer": {"params": {"lr": 1, "max_grad_norm": 1.0}}})"); }),
              HasSubstr("gradient_clipping"));
}

TEST_F(ImportTest, InlineAndBySet) {
  const std::string inline_text =
      fmt::format("{{{},\n \"deepspeed\": {{{},\n \"gradient_clipping\": 0.5}}}}", kJob, kRest);
  const RunConfig c = parse_config(inline_text, "c.json");
  EXPECT_EQ(c.gradient_clipping, 0.5);
  EXPECT_EQ(origin_of(c, "gradient_clipping").text, "deepspeed in c.json:3");
  std::ofstream(folder / "other.json") << with("\"gradient_clipping\": 2");
  const RunConfig other = import(kTutorial, "", {"deepspeed=other.json"});
  EXPECT_EQ(other.gradient_clipping, 2);
  EXPECT_EQ(other.train_batch_size, 8u);
}

}  // namespace
}  // namespace sluice::configs
