// Every way to get a config wrong: exit code 2 and one message that says where, what, and what is allowed.
#include <gmock/gmock.h>

#include "tests/configs/sample.h"

namespace sluice::configs {
namespace {

using ::testing::HasSubstr;

struct BadText {
  const char* text;
  std::vector<const char*> fragments;
};

TEST(BadConfig, TextThatIsNoConfig) {
  const BadText cases[] = {
      {"", {"c.json:1:", "not valid JSON"}},
      {"{\"steps\": }", {"c.json:1:", "not valid JSON"}},
      {"{\n  \"steps\": 3,\n}", {"c.json:3:1", "not valid JSON"}},
      {"{\"steps\": 3} x", {"c.json:1:", "not valid JSON"}},
      {"{\n  // a comment\n  \"steps\": 3}", {"c.json:2:", "not valid JSON"}},
      {"{\"steps\": 1e999}", {"c.json:1:", "not valid JSON"}},
      {"{\"steps\": \"\xff\"}", {"c.json:1:", "not valid JSON"}},
      {"[1, 2]", {"c.json", "one JSON object"}},
      {"3", {"c.json", "one JSON object"}},
      {"{\"steps\": 3,\n \"steps\": 4}", {"c.json:2:", "\"steps\" is given twice"}},
      {"{\"run\": {\"seed\": 3, \"seed\": 4}}", {"\"seed\" is given twice in run"}},
      {"{\"run.seed\": 3}", {"unknown key \"run.seed\"", "no dots"}},
      {"{\"run\": {\"a.b\": 3}}", {"unknown key \"a.b\" in run", "no dots"}},
      {"{\"\": 3}", {"unknown key"}},
      {"{\n \"optimzer\": {}}", {"c.json:2", "unknown key \"optimzer\"", "\"optimizer\""}},
      {"{\"optimizer\": {\"params\": {\"wieght_decay\": 0}}}",
       {"optimizer.params.wieght_decay", "nearest known key is \"optimizer.params.weight_decay\""}},
      {"{\"deepsped\": 1}", {"nearest known key is \"deepspeed\""}},
      {"{\"lr\": 1e-4}", {"unknown key \"lr\"", "\"optimizer.params.lr\""}},
      {"{\"wall_clock_breakdown\": true}", {"of DeepSpeed has no meaning here", "\"deepspeed\": FILE"}},
      {"{\"run\": 3}", {"run = 3", "section of keys"}},
      {"{\"zero_optimization\": [1]}", {"zero_optimization = [1]", "section of keys"}},
      {"{\"deepspeed\": 3}", {"deepspeed = 3", "path of a DeepSpeed config"}},
      {"{\"deepspeed\": \"does-not-exist.json\"}", {"does-not-exist.json"}},
  };
  for (const BadText& bad : cases) {
    const std::string message = config_error([&] { parse_config(bad.text, "c.json"); });
    for (const char* fragment : bad.fragments) EXPECT_THAT(message, HasSubstr(fragment)) << bad.text;
  }
}

TEST(BadConfig, DeeplyNestedTextIsRefused) {
  const std::string deep = "{\"run\": " + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_THAT(config_error([&] { parse_config(deep, "c.json"); }), HasSubstr("nested more than 32 levels"));
}

TEST(BadConfig, FileThatIsNone) {
  EXPECT_THAT(config_error([] { read_config("no-such-file.json"); }),
              HasSubstr("no-such-file.json: No such file"));
  EXPECT_THAT(config_error([] { read_config("/tmp"); }), HasSubstr("not a regular file"));
}

struct BadValue {
  std::vector<std::string> set;
  std::vector<const char*> fragments;
};

void expect_refused(const std::vector<BadValue>& cases) {
  for (const BadValue& bad : cases) {
    const std::string message = config_error([&] { sample(bad.set); });
    for (const char* fragment : bad.fragments) EXPECT_THAT(message, HasSubstr(fragment)) << bad.set.back();
  }
}

TEST(BadConfig, ValuesThatAreNotAllowed) {
  expect_refused({
      {{"steps=-1"}, {"--set: steps = -1", "an integer from 0"}},
      {{"steps=1.5"}, {"steps = 1.5", "an integer from 0"}},
      {{"steps=ten"}, {"steps = \"ten\"", "an integer from 0"}},
      {{"steps=[3]"}, {"steps = [3]", "an integer from 0"}},
      {{"steps=99999999999999999999999"}, {"an integer from 0"}},
      {{"epochs=0", "steps=null"}, {"epochs = 0", "a number above 0"}},
      {{"train_micro_batch_size_per_gpu=0"}, {"an integer from 1"}},
      {{"optimizer.type=Lamb"}, {"\"Lamb\"", "\"AdamW\"", "\"Lion\""}},
      {{"optimizer.params.lr=-1e-4"}, {"a number from 0"}},
      {{"optimizer.params.lr=\"1e-4\""}, {"a number from 0"}},
      {{"optimizer.params.betas=[0.9]"}, {"a list of two numbers"}},
      {{"optimizer.params.betas=[0.9,1.0]"}, {"from 0 and below 1"}},
      {{"optimizer.params.betas=0.9"}, {"a list of two numbers"}},
      {{"optimizer.params.eps=0"}, {"a number above 0"}},
      {{"optimizer.params.bias_correction=yes"}, {"true or false"}},
      {{"optimizer.params.no_decay=[1]"}, {"a list of patterns"}},
      {{"bf16.enabled=1"}, {"bf16.enabled = 1", "true or false"}},
      {{"gradient_clipping=-1"}, {"a number from 0"}},
      {{"communication_data_type=int8"}, {"\"bf16\", \"fp16\" or \"fp32\""}},
      {{"zero_optimization.stage=4"}, {"an integer from 0 to 3"}},
      {{"zero_optimization.offload_param.device=disk"}, {"\"none\", \"cpu\" or \"nvme\", or \"auto\""}},
      {{"aio.queue_depth=0"}, {"an integer from 1 to 1024"}},
      {{"aio.block_size=1KB"}, {"a number of bytes"}},
      {{"model.path=\"\""}, {"a path"}},
      {{"model.loss_chunk=0"}, {"an integer from 1"}},
      {{"data.sequence_length=1"}, {"an integer from 2"}},
      {{"run.on_nonfinite=ignore"}, {"\"stop\" or \"skip\""}},
      {{"run.grace=-1"}, {"a number from 0 to 86400"}},
      {{"storage.durable=always"}, {"\"step\", \"checkpoint\" or \"none\""}},
      {{"storage.paths=[3]"}, {"a list of paths"}},
      {{"storage.tile=100"}, {"an integer from 65536"}},
      {{"memory.gpu=lots"}, {"a number of bytes", "auto"}},
      {{"memory.gpu=0"}, {"a number of bytes"}},
      {{"memory.host=-5"}, {"a number of bytes"}},
      {{"machine.device=tpu"}, {"\"cpu\" or \"cuda\""}},
      {{"machine.compute_threads=0"}, {"an integer from 1"}},
      {{"execution.keep_graphs=some"}, {"a number of layers, or \"all\""}},
      {{"execution.keep_graphs=4294967295"}, {"a number of layers"}},
      {{"execution.pools.state=0"}, {"an integer from 1"}},
  });
}

TEST(BadConfig, CombinationsThatCannotBe) {
  expect_refused({
      {{"train_batch_size=7"}, {"train_batch_size = 7", "give two of the three"}},
      {{"train_batch_size=7", "gradient_accumulation_steps=null"},
       {"not a multiple of train_micro_batch_size_per_gpu"}},
      {{"train_micro_batch_size_per_gpu=18446744073709551615"}, {"too large"}},
      {{"train_micro_batch_size_per_gpu=null", "gradient_accumulation_steps=null"},
       {"train_micro_batch_size_per_gpu is missing"}},
      {{"optimizer.params.lr=null"}, {"optimizer.params.lr is missing", "no default learning rate"}},
      {{"steps=null"}, {"steps is missing"}},
      {{"epochs=2"}, {"epochs = 2", "give one of the two"}},
      {{"data.train=null"}, {"data.train is missing", "sluice prepare"}},
      {{"model=null"}, {"model.path is missing"}},
      {{"data.eval=null", "run.eval_every=5"}, {"run.eval_every = 5", "data.eval"}},
      {{"optimizer.params.adam_w_mode=false"}, {"adam_w_mode", "choose optimizer.type \"Adam\""}},
      {{"optimizer.type=Lion", "optimizer.params.eps=1e-8"}, {"optimizer.params.eps", "Lion has no such parameter"}},
      {{"scheduler.params.warmup_num_steps=3"}, {"a scheduler of type \"none\" has no such parameter"}},
      {{"scheduler.type=WarmupCosineLR", "scheduler.params.warmup_max_lr=1"},
       {"\"WarmupCosineLR\" has no such parameter"}},
      {{"scheduler.type=WarmupLR", "scheduler.params.total_num_steps=9"},
       {"\"WarmupLR\" has no such parameter"}},
      {{"scheduler.type=WarmupCosineLR"}, {"warmup_num_steps = 1000", "must end before", "step 10"}},
      {{"zero_optimization.offload_optimizer.device=none"},
       {"needs zero_optimization.offload_param.device \"none\", not \"cpu\""}},
      {{"zero_optimization.stage=2", "zero_optimization.offload_param.device=nvme"},
       {"stages 1 and 2 keep whole weights on the device, or with one rank on cpu; take \"none\", or zero_optimization.stage 3"}},
      {{"zero_optimization.stage=0", "zero_optimization.offload_param.device=nvme"}, {"stage 0 shards nothing", "take \"cpu\" or \"none\""}},
      {{"zero_optimization.offload_param.device=none", "zero_optimization.offload_optimizer.device=none",
        "storage.durable=step"},
       {"storage.durable = \"step\"", "cannot be written out every step for now"}},
      {{"execution.resident_blocks=2", "storage.durable=step"}, {"execution.resident_blocks = 2", "cannot be written out every step for now"}},
      {{"execution.resident_blocks=2", "zero_optimization.offload_param.device=none", "zero_optimization.offload_optimizer.device=none"},
       {"execution.resident_blocks = 2", "keeps every block on the device"}},
      {{"execution.resident_blocks=half"}, {"execution.resident_blocks"}},
      {{"machine.links.net_latency=-1"}, {"machine.links.net_latency"}},
      {{"zero_optimization.offload_param={\"device\":\"nvme\",\"nvme_path\":\"/a\"}",
        "zero_optimization.offload_optimizer.nvme_path=/b"},
       {"differs from offload_param.nvme_path \"/a\"", "storage.paths"}},
      {{"storage.tile=65537"}, {"storage.tile = 65537", "multiple of 65536"}},
      {{"aio.block_size=5000"}, {"aio.block_size = 5000", "multiple of 4096"}},
      {{"fp16.enabled=true", "bf16.enabled=true"}, {"fp16.enabled = true", "bf16.enabled is true too"}},
      {{"communication_data_type=fp16"}, {"communication_data_type = \"fp16\"", "only fp16.enabled has"}},
      {{"fp16={\"enabled\":true,\"min_loss_scale\":256,\"initial_scale_power\":7}"}, {"fp16.min_loss_scale = 256", "begins below it, at 128"}},
      {{"fp16.hysteresis=0"}, {"fp16.hysteresis = 0"}},
      {{"fp16.loss_scale=-1"}, {"fp16.loss_scale = -1"}},
      {{"fp16.initial_scale_power=65"}, {"fp16.initial_scale_power = 65"}},
      {{"fp16.window=5"}, {"unknown key \"fp16.window\""}},
  });
}

TEST(BadConfig, WhatDoesNotRunYet) {
  expect_refused({
      {{"scheduler.type=OneCycle"}, {"scheduler.type = \"OneCycle\"", "not built yet"}},
      {{"scheduler.type=LRRangeTest"}, {"not built yet"}},
      {{"scheduler.params.cycle_min_lr=1"}, {"OneCycle is not built yet"}},
      {{"scheduler.params.lr_range_test_min_lr=1"}, {"LRRangeTest is not built yet"}},
      {{"run.world=2", "zero_optimization.stage=1", "zero_optimization.offload_param.device=cpu"},
       {"stages 1 and 2 keep whole weights on the device of every rank; take \"none\", or zero_optimization.stage 3"}},
      {{"run.world=2", "zero_optimization.stage=1", "zero_optimization.offload_param.device=nvme"},
       {"stages 1 and 2 keep whole weights on the device of every rank; take \"none\", or zero_optimization.stage 3"}},
      {{"run.world=2", "zero_optimization.stage=0", "zero_optimization.offload_param.device=none",
        "zero_optimization.offload_optimizer.device=nvme"},
       {"stage 0 shards nothing"}},
      {{"run.world=3", "train_batch_size=8", "train_micro_batch_size_per_gpu=2", "gradient_accumulation_steps=null"},
       {"train_batch_size = 8: not a multiple of", "x 3 ranks"}},
      {{"model.path=null", "model.sizes=Llama-3.1-8B"}, {"model.sizes", "can only be planned (sluice plan); give model.path"}},
      {{"model.sizes={\"layers\":2}"}, {"model.path = models/tiny says what the model is already"}},
      {{"model.sizes=[3]"}, {"a known model's name such as"}},
      {{"storage.paths=[\"/a\",\"/b\",\"/a\"]"}, {"names /a twice"}},
      {{"storage.drive_rates=fast"}, {"storage.drive_rates", "a list of rates such as [\"3GB/s\", \"1.5GB/s\"]"}},
      {{"storage.drive_rates=[\"3GB/s\",0]"}, {"a list of rates"}},
      {{"storage.drive_rates=[]"}, {"a list of rates"}},
      {{"storage.drive_rates=[\"3GB/s\",\"1GB/s\"]"}, {"storage.drive_rates", "has 2 rates for one folder in storage.paths"}},
      {{"storage.paths=[\"/a\",\"/b\"]", "storage.drive_rates=[1e9]"}, {"has 1 rate for 2 folders"}},
      {{"checkpoint.every=10"}, {"checkpoint.every = 10", "goes with storage.durable"}},
      {{"checkpoint={\"keep\":2}"}, {"not built yet"}},
      {{"run.deterministic=false", "machine.device=cpu"}, {"run.deterministic", "no other kernels"}},
      {{"machine.links.h2d=fast"}, {"a rate above 0 such as \"12GB/s\""}},
      {{"machine.compute=20TFLOP/s", "machine.device=cuda"}, {"machine.compute", "emulated device"}},
      {{"machine.compute=20TFLOP/s", "run.eval_every=5", "data.eval=eval.tokens"}, {"machine.compute", "nothing to evaluate"}},
      {{"execution.overlap=sideways"}, {"execution.overlap", "forward"}},
      {{"execution.boundaries=disk"}, {"execution.boundaries"}},
      {{"goals={\"max_cost\":3}"}, {"goals.price_per_hour is missing"}},
      {{"goals.max_hours=0"}, {"a number above 0"}},
  });
}

TEST(BadConfig, AssignmentsThatAreNone) {
  expect_refused({
      {{"steps"}, {"--set steps: write key=value"}},
      {{"=3"}, {"write key=value"}},
      {{""}, {"write key=value"}},
      {{"step=3"}, {"--set: unknown key \"step\"", "\"steps\""}},
      {{"run.=3"}, {"unknown key \"run.\""}},
      {{".seed=3"}, {"unknown key \".seed\""}},
      {{"run={\"seed\":1,\"seed\":2}"}, {"given twice"}},
      {{"run=3"}, {"section of keys"}},
  });
}

}  // namespace
}  // namespace sluice::configs
