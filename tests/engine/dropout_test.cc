// Dropout: its statistics, what its masks depend on, and gradients under one mask.
#include "engine/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <set>

#include "tests/engine/math_fixture.h"

namespace sluice::engine {
namespace {

TEST(Dropout, KeepsTheMeanAndHasTheVarianceOfItsProbability) {
  const at::Tensor ones = at::ones({400, 250});
  for (const double p : {0.1, 0.5}) {
    const at::Tensor y = dropped(ones, make_dropout(p, RandomKey{1, 2, 3}, 4, DropoutPlace::mlp_output));
    const double n = 1e5, variance = p / (1 - p);
    EXPECT_NEAR(y.mean().item<double>(), 1, 5 * std::sqrt(variance / n));
    EXPECT_NEAR((y - 1).square().mean().item<double>(), variance, 0.03 * variance);
    EXPECT_NEAR(y.mean({1}).std().item<double>(), std::sqrt(variance / 250), 0.2 * std::sqrt(variance / 250));  // rows are independent
    EXPECT_NEAR(y.mean({0}).std().item<double>(), std::sqrt(variance / 400), 0.2 * std::sqrt(variance / 400));
  }
}

TEST(Dropout, TheMaskDependsOnEveryPartOfItsKey) {
  const auto key_of = [](RandomKey key, uint32_t block, DropoutPlace place) { return make_dropout(0.1, key, block, place).key; };
  std::set<uint64_t> keys;
  for (uint64_t i = 0; i < 3; ++i)
    for (uint64_t j = 0; j < 3; ++j)
      for (uint64_t k = 0; k < 3; ++k)
        for (uint32_t block = 0; block < 3; ++block)
          for (const DropoutPlace place : {DropoutPlace::attention, DropoutPlace::attention_output, DropoutPlace::mlp_output})
            keys.insert(key_of({i, j, k}, block, place));
  EXPECT_EQ(keys.size(), 243u);
  EXPECT_FALSE(make_dropout(0.1, std::nullopt, 1, DropoutPlace::attention).active());
  EXPECT_FALSE(make_dropout(0, RandomKey{}, 1, DropoutPlace::attention).active());
  EXPECT_TRUE(make_dropout(1e-12, RandomKey{}, 1, DropoutPlace::attention).active());
}

TEST(Dropout, AddsTheDroppedUpdateAndGivesItsGradient) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({2, 9, 70}).to(type).set_requires_grad(true), u = at::randn({2, 9, 70}).to(type).set_requires_grad(true);
    const auto dropout = make_dropout(0.3, RandomKey{5, 6, 7}, 1, DropoutPlace::attention_output);
    const at::Tensor y = dropout_add(x, u, dropout);
    EXPECT_TRUE(y.detach().equal(x.detach() + dropped(u.detach(), dropout)));
    const at::Tensor grad = at::randn({2, 9, 70}).to(type);
    torch::autograd::backward({y}, {grad});
    EXPECT_TRUE(x.grad().equal(grad));
    EXPECT_TRUE(u.grad().equal(dropped(grad, dropout)));
    EXPECT_GT(u.grad().eq(0).sum().item<int64_t>(), 250);
  }
}

MicroBatch keyed(const HfConfig& config, std::optional<RandomKey> key) {
  MicroBatch batch = random_batch(config, 2, 100, {{0, 30}, {0}}, 1);
  batch.random = key;
  return batch;
}

TEST(ModelDropout, EvaluationHasNone) {
  MathModel with(tiny_gpt2(0.1), at::kBFloat16), without(tiny_gpt2(0), at::kBFloat16);
  with.randomize(3), without.randomize(3);
  EXPECT_EQ(with.evaluate({keyed(with.config, {})}), without.evaluate({keyed(with.config, {})}));
  EXPECT_EQ(with.step({{keyed(with.config, {})}}), without.step({{keyed(with.config, RandomKey{1, 1, 1})}}));
  EXPECT_NE(with.step({{keyed(with.config, RandomKey{1, 1, 1})}}), without.step({{keyed(with.config, RandomKey{1, 1, 1})}}));
}

TEST(ModelDropout, EveryPlaceHasItsOwnProbabilityAndMatters) {
  const auto loss = [](double embedding, double attention, double residual) {
    HfConfig c = tiny_gpt2(0);
    c.embedding_dropout = embedding, c.attention_dropout = attention, c.residual_dropout = residual;
    MathModel model(c, at::kFloat);
    model.randomize(3);
    return model.step({{keyed(c, RandomKey{1, 1, 1})}});
  };
  const std::set<double> all{loss(0, 0, 0), loss(0.1, 0, 0), loss(0, 0.1, 0), loss(0, 0, 0.1)};
  EXPECT_EQ(all.size(), 4u);
}

// The masks stay while the weights move a little along the gradient: the loss must change by what the gradient says.
TEST(ModelDropout, GradientsAgreeWithFiniteDifferencesUnderTheSameMasks) {
  MathModel model(tiny_gpt2(0.2), at::kFloat);
  model.randomize(3);
  const MicroBatch batch = keyed(model.config, RandomKey{4, 5, 6});
  model.step({{batch}});
  const auto gradients = model.gradients();
  for (const char* part : {"wte.weight", "wpe.weight", "h.0.attn.c_attn.weight", "h.0.attn.c_proj.bias", "h.1.mlp.c_fc.weight", "h.0.ln_2.weight",
                           "h.1.mlp.c_proj.weight", "ln_f.bias"}) {
    const at::Tensor& gradient = gradients.at(part);
    const double size = gradient.norm().item<double>(), step = 2e-3;
    const auto moved = [&](double by) {
      for (size_t b = 0; b < model.blocks.size(); ++b)
        for (const auto& place : model.layout.blocks()[b].tensors)
          if (place.name == part)
            model.blocks[b].flat.narrow(0, static_cast<int64_t>(place.offset), gradient.numel()).add_(gradient.flatten(), by / size);
      return model.step({{batch}});
    };
    const double above = moved(step), below = moved(-2 * step);
    moved(step);
    EXPECT_NEAR((above - below) / (2 * step) / size, 1, 2e-2) << part;
  }
}

}  // namespace
}  // namespace sluice::engine
