// The formula of `sluice plan` beside what a dry run counts on the emulated device.
#include "engine/temporaries.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/dry_run.h"
#include "engine/known_models.h"
#include "engine/run_shape.h"
#include "engine/runtime.h"

namespace sluice::engine {
namespace {

struct Case {
  int64_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab;
  bool tied;
  uint32_t micro_batch, sequence, accumulation, keep_graphs;
  bool fp32 = false;
  int64_t loss_chunk = 512;
  const char* family = "llama";
  double dropout = 0.1;  // gpt2
  bool fp16 = false;
};

constexpr Case kCases[] = {
    {576, 1536, 3, 9, 3, 64, 4096, true, 1, 256, 1, 0},              // SmolLM2's widths
    {576, 1536, 3, 9, 3, 64, 49152, true, 1, 256, 1, 0},             // the loss is the worst moment
    {576, 1536, 3, 9, 3, 64, 4096, true, 2, 512, 2, 2},              // graphs of two micro-batches
    {512, 2048, 2, 8, 8, 64, 1024, false, 4, 128, 1, 0},             // many short rows
    {256, 512, 2, 8, 2, 32, 1024, false, 1, 2048, 1, 0},             // long: attention is the worst moment
    {512, 1024, 4, 8, 4, 64, 2048, true, 1, 512, 1, 4, true},        // fp32
    {256, 4096, 2, 4, 4, 64, 1024, false, 1, 512, 1, 1},             // wide
    {768, 2048, 2, 48, 48, 16, 512, true, 1, 128, 1, 0, false, 64},  // many heads
    {256, 512, 3, 8, 4, 64, 4096, true, 1, 256, 1, 0, false, 512, "qwen3"},
    {256, 512, 2, 8, 2, 64, 1024, true, 2, 512, 2, 2, false, 512, "qwen3"},
    {384, 256, 2, 16, 16, 64, 512, false, 1, 512, 1, 0, false, 64, "qwen3"},
    {512, 1536, 2, 8, 2, 64, 1024, true, 1, 512, 1, 1, false, 512, "qwen2"},
    {256, 1024, 2, 4, 4, 64, 1024, false, 1, 256, 1, 1, false, 512, "llama", 0, true},
    {256, 1024, 3, 4, 4, 64, 4096, true, 1, 256, 1, 0, false, 512, "gpt2"},
    {256, 1024, 3, 4, 4, 64, 4096, true, 1, 256, 1, 0, false, 512, "gpt2", 0},
    {512, 2048, 2, 8, 8, 64, 1024, true, 4, 128, 2, 2, false, 64, "gpt2"},
    {256, 512, 2, 8, 8, 32, 1024, true, 1, 2048, 1, 0, false, 512, "gpt2"},
    {384, 1536, 3, 6, 6, 64, 2048, true, 1, 512, 1, 3, true, 512, "gpt2"},
    {512, 2048, 2, 8, 8, 64, 50257, true, 1, 256, 1, 0, false, 512, "gpt2"},
};

HfConfig config_of(const Case& c) {
  if (c.family == std::string("gpt2"))
    return model_of_sizes("gpt2", {{"n_embd", c.hidden},
                                   {"n_inner", c.intermediate},
                                   {"n_layer", c.layers},
                                   {"n_head", c.heads},
                                   {"n_positions", 2048},
                                   {"vocab_size", c.vocab},
                                   {"embd_pdrop", c.dropout},
                                   {"attn_pdrop", c.dropout},
                                   {"resid_pdrop", c.dropout}});
  return model_of_sizes(c.family, {{"hidden_size", c.hidden},
                                  {"intermediate_size", c.intermediate},
                                  {"num_hidden_layers", c.layers},
                                  {"num_attention_heads", c.heads},
                                  {"num_key_value_heads", c.kv_heads},
                                  {"head_dim", c.head_dim},
                                  {"vocab_size", c.vocab},
                                  {"tie_word_embeddings", c.tied}});
}

struct Both {
  uint64_t formula, counted;
};

Both temporaries(const Case& c) {
  const HfConfig config = config_of(c);
  TrainerOptions o;
  o.model.schema = c.fp32 ? offload::Schema::fp32 : c.fp16 ? offload::Schema::fp16 : offload::Schema::bf16;
  o.model.loss_chunk = c.loss_chunk;
  o.micro_batch = c.micro_batch;
  o.sequence = c.sequence;
  o.accumulation = c.accumulation;
  o.plan.keep_graphs = c.keep_graphs;
  o.wire = c.fp32 ? gpu::WireType::fp32 : c.fp16 ? gpu::WireType::fp16 : gpu::WireType::bf16;
  const offload::Layout layout(describe(config, o.model), o.model.schema, o.model.tile);
  const offload::PlanOptions options = train_plan_options(o, layout, config.hidden);
  const offload::Plan plan = offload::build_train_plan(layout, options);
  const StepShape shape(layout, step_options(o, layout, config.hidden, options), ring_sizes({&plan}));
  Runtime runtime({.device_memory = 4ull << 30, .host_memory = 4ull << 30, .compute_threads = 2});
  StepBuffers buffers(shape, *runtime.device, runtime.host);
  const auto model = make_model(config, layout, {.loss_chunk = c.loss_chunk, .pad_token = {}});
  const uint64_t counted =
      measure_temporaries(*model, shape, buffers, *runtime.device, *runtime.compute,
                          {.training = true, .keep_graphs = c.keep_graphs, .lowest_trainable = 0});
  int threads = 0;
  runtime.on_compute([&] { threads = at::get_num_threads(); });
  const uint64_t formula = estimate_temporaries(config, shape,
                                                {.keep_graphs = c.keep_graphs,
                                                 .loss_chunk = c.loss_chunk,
                                                 .compute_threads = static_cast<uint32_t>(threads)});
  return {formula, counted};
}

TEST(Temporaries, FormulaIsWithinTwoPercentOfACount) {
  for (const Case& c : kCases) {
    const Both both = temporaries(c);
    const double off = static_cast<double>(both.formula) / static_cast<double>(both.counted) - 1;
    const std::string text =
        fmt::format("{} hidden {} vocab {} rows {} x {} graphs {}: formula {} counted {} ({:+.2f} %)", c.family, c.hidden,
                    c.vocab, c.micro_batch, c.sequence, c.keep_graphs, both.formula, both.counted, 100 * off);
    RecordProperty(fmt::format("case_{}", &c - kCases), text);
    EXPECT_LE(std::abs(off), 0.02) << text;
  }
}

}  // namespace
}  // namespace sluice::engine
