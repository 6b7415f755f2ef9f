// Bits and contracts of a whole model: recompute, kept graphs, threads, frozen parts, refilled slots.
#include "engine/model.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/embedding.h"
#include "tests/engine/math_fixture.h"

namespace sluice::engine {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

// With keys for dropout, which Llama has no use for.
std::vector<MicroBatch> two_batches(const HfConfig& config) {
  std::vector<MicroBatch> batches{random_batch(config, 2, 150, {{0}, {0}}, 1),
                                  random_batch(config, 2, 150, {{0, 40, 41}, {0, 149}}, 2)};
  for (size_t i = 0; i < batches.size(); ++i) batches[i].random = RandomKey{.seed = 7, .step = 3, .micro = i};
  return batches;
}

struct Kind {
  Family family;
  at::ScalarType type;
  HfConfig config() const { return family == Family::gpt2 ? tiny_gpt2(0.1) : tiny_config(); }
};

struct Result {
  double loss;
  Tensors grads;
};

Result run(const Kind& kind, bool keep_graphs, const std::vector<std::string>& frozen = {}) {
  MathModel model(kind.config(), kind.type, frozen);
  model.randomize(7);
  const double loss = model.step({two_batches(model.config), keep_graphs});
  return {loss, model.gradients()};
}

void expect_equal(const Result& a, const Result& b) {
  EXPECT_EQ(a.loss, b.loss);
  for (const auto& [name, grad] : a.grads) {
    const auto other = b.grads.find(name);
    if (other == b.grads.end()) continue;  // frozen there
    EXPECT_TRUE(grad.equal(other->second)) << name;
  }
}

class ModelBits : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, ModelBits,
                         testing::Values(Kind{Family::llama, at::kFloat}, Kind{Family::llama, at::kBFloat16},
                                         Kind{Family::gpt2, at::kFloat}, Kind{Family::gpt2, at::kBFloat16},
                                         Kind{Family::llama, at::kHalf}, Kind{Family::gpt2, at::kHalf}),
                         [](const auto& kind) {
                           return std::string(kind.param.family == Family::gpt2 ? "gpt2" : "llama") +
                                  (kind.param.type == at::kFloat ? "_fp32" : kind.param.type == at::kHalf ? "_fp16" : "_bf16");
                         });

TEST_P(ModelBits, TwoRuns) {
  expect_equal(run(GetParam(), false), run(GetParam(), false));
}
TEST_P(ModelBits, RecomputeAndKeptGraph) {
  expect_equal(run(GetParam(), false), run(GetParam(), true));
}

TEST_P(ModelBits, OneAndTwoThreads) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Result one = run(GetParam(), false);
  at::set_num_threads(2);
  const Result two = run(GetParam(), false);
  at::set_num_threads(threads);
  expect_equal(one, two);
}

TEST_P(ModelBits, ForwardWithAndWithoutGrad) {
  MathModel model(GetParam().config(), GetParam().type);
  model.randomize(7);
  MicroBatch batch = random_batch(model.config, 2, 130, {{0, 9}, {0}}, 3);
  batch.random = RandomKey{1, 2, 3};
  const at::Tensor x = model.model->embed(model.blocks[0], batch);
  EXPECT_TRUE(model.model->forward(0, model.blocks[1], x, batch)
                  .equal(model.model->forward_graph(0, model.blocks[1], x, batch).output.detach()));
}

// What is trained keeps its bits when other tensors are frozen: in a layer, a whole layer, the matrix, the
// norm.
TEST_P(ModelBits, PartlyFrozen) {
  const Result all = run(GetParam(), false);
  using Names = std::vector<std::string>;
  const std::vector<Names> llama{
       {"q_proj.weight", "input_layernorm.weight", "down_proj.weight"},
        {"layers.1.input_layernorm.weight", "layers.1.self_attn.q_proj.weight",
         "layers.1.self_attn.k_proj.weight", "layers.1.self_attn.v_proj.weight",
         "layers.1.self_attn.o_proj.weight", "layers.1.post_attention_layernorm.weight",
         "layers.1.mlp.gate_proj.weight", "layers.1.mlp.up_proj.weight", "layers.1.mlp.down_proj.weight"},
        {"embed_tokens.weight"},
        {"model.norm.weight"},
        {"embed_tokens.weight", "model.norm.weight", "layers.0.self_attn.k_proj.weight"}};
  const std::vector<Names> gpt2{
      {"c_attn.weight", "ln_1.bias", "ln_2.weight", "mlp.c_proj.weight", "c_fc.bias"},
      {"h.1.ln_1.weight", "h.1.ln_1.bias", "h.1.attn.c_attn.weight", "h.1.attn.c_attn.bias", "h.1.attn.c_proj.weight",
       "h.1.attn.c_proj.bias", "h.1.ln_2.weight", "h.1.ln_2.bias", "h.1.mlp.c_fc.weight", "h.1.mlp.c_fc.bias",
       "h.1.mlp.c_proj.weight", "h.1.mlp.c_proj.bias"},
      {"wte.weight"},
      {"wpe.weight"},
      {"ln_f.weight"},
      {"wte.weight", "wpe.weight", "ln_f.bias", "h.0.attn.c_attn.weight"}};
  for (const Names& frozen : GetParam().family == Family::gpt2 ? gpt2 : llama) {
    const Result part = run(GetParam(), false, frozen);
    EXPECT_LT(part.grads.size(), all.grads.size());
    expect_equal(part, all);
  }
}

TEST(Model, GradientsAccumulateOverMicroBatches) {
  MathModel model(tiny_config(), at::kFloat);
  model.randomize(7);
  const std::vector<MicroBatch> batches = two_batches(model.config);
  const double total = static_cast<double>(batches[0].trained + batches[1].trained);
  model.step({batches});
  const Tensors both = model.gradients();
  Tensors sum;
  for (const MicroBatch& batch : batches) {
    model.step({{batch}});
    for (const auto& [name, grad] : model.gradients()) {
      const at::Tensor part = grad * (static_cast<double>(batch.trained) / total);
      sum[name] = sum.contains(name) ? sum[name] + part : part;
    }
  }
  for (const auto& [name, grad] : both) EXPECT_LT(relative_error(grad, sum[name]), 1e-5) << name;
}

TEST(Model, PaddingOfTheFlatGradientStaysZero) {
  MathModel model(tiny_config(), at::kBFloat16);
  model.randomize(7);
  model.step({two_batches(model.config)});
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    at::Tensor rest = model.blocks[b].grad.clone();
    for (const auto& place : model.layout.blocks()[b].tensors) {
      rest.narrow(0, static_cast<int64_t>(place.offset), static_cast<int64_t>(place.count)).zero_();
    }
    EXPECT_EQ(rest.abs().sum().item<float>(), 0);
  }
}

// A refill that bumps the version counter makes the backward of a live graph throw, whichever weight it
// touches.
TEST(Model, RefilledSlotUnderALiveGraphThrows) {
  MathModel model(tiny_config(), at::kBFloat16, {"k_proj.weight"});
  model.randomize(7);
  const MicroBatch batch = random_batch(model.config, 1, 30, {{0}}, 3);
  const at::Tensor x = model.model->embed(model.blocks[0], batch);
  LayerGraph graph = model.model->forward_graph(0, model.blocks[1], x, batch);
  const at::Tensor grad = graph.output.detach().clone();
  model.blocks[1].flat.unsafeGetTensorImpl()->bump_version();
  EXPECT_THROW(model.model->backward(0, std::move(graph), model.blocks[1], grad, true), c10::Error);
}

TEST(Model, InputGradientBelowTheLowestTrainedBlockIsRefused) {
  MathModel model(tiny_config(), at::kBFloat16, {"embed_tokens.weight"});
  model.randomize(7);
  const MicroBatch batch = random_batch(model.config, 1, 30, {{0}}, 3);
  const at::Tensor x = model.model->embed(model.blocks[0], batch);
  LayerGraph graph = model.model->forward_graph(0, model.blocks[1], x, batch);
  EXPECT_FALSE(graph.input.requires_grad());
  const at::Tensor grad = graph.output.detach().clone();
  EXPECT_THROW(model.model->backward(0, std::move(graph), model.blocks[1], grad, true), base::Error);
}

TEST(Model, DescribesBlocksInOrder) {
  HfConfig config = tiny_config();
  config.tied = false;
  config.mlp_bias = false;
  const offload::ModelDesc desc = describe_llama(config);
  ASSERT_EQ(desc.blocks.size(), 4u);
  std::vector<std::string> names;
  for (const auto& tensor : desc.blocks[2].tensors) names.push_back(tensor.name);
  const std::string layer = "model.layers.1.";
  EXPECT_EQ(names, (std::vector<std::string>{
                       layer + "input_layernorm.weight", layer + "self_attn.q_proj.weight",
                       layer + "self_attn.q_proj.bias", layer + "self_attn.k_proj.weight",
                       layer + "self_attn.k_proj.bias", layer + "self_attn.v_proj.weight",
                       layer + "self_attn.v_proj.bias", layer + "self_attn.o_proj.weight",
                       layer + "self_attn.o_proj.bias", layer + "post_attention_layernorm.weight",
                       layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight",
                       layer + "mlp.down_proj.weight"}));
  EXPECT_EQ(desc.blocks[3].tensors.size(), 2u);
  EXPECT_EQ(desc.blocks[3].tensors[1].name, "lm_head.weight");
}

// 4096 equal rows: where LibTorch's bf16 sum stops at 0.5.
TEST(Embedding, ManyEqualRowsKeepTheirSum) {
  const at::TensorOptions f32 = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor grad = at::empty({3, 8}, f32).zero_(),
                   rows = at::empty({1, 4096, 8}, f32).fill_(0.001).to(at::kBFloat16);
  const at::Tensor tokens = at::empty({1, 4096}, at::TensorOptions().dtype(at::kLong)).fill_(1);
  add_row_grads(rows, tokens, std::nullopt, grad);
  EXPECT_NEAR(grad[1][0].item<float>(), 4096 * rows[0][0][0].item<float>(), 1e-3);
  EXPECT_EQ(grad[0].sum().item<float>(), 0);
  grad.zero_();
  add_row_grads(rows, tokens, 1, grad);  // the pad token's row gets none
  EXPECT_EQ(grad.abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace sluice::engine
