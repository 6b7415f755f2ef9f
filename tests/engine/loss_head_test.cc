#include "engine/loss_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "tests/engine/math_fixture.h"

namespace sluice::engine {
namespace {

constexpr int64_t kTokens = 70, kWidth = 48, kVocab = 333;

at::Tensor random_matrix(std::vector<int64_t> shape, at::ScalarType type, uint64_t seed, float mean = 0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  at::Tensor t = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
  for (float *p = t.data_ptr<float>(), *end = p + t.numel(); p < end; ++p) *p = mean + 0.3f * normal(random);
  return t.to(type);
}

struct Problem {
  explicit Problem(at::ScalarType type)
      : x(random_matrix({2, kTokens / 2, kWidth}, type, 1)),
        targets(at::empty({2, kTokens / 2}, at::TensorOptions().dtype(at::kLong))) {
    head.norm = random_matrix({kWidth}, type, 2, 1);
    head.matrix = random_matrix({kVocab, kWidth}, type, 3);
    head.norm_grad = at::zeros({kWidth}, at::TensorOptions().dtype(at::kFloat));
    head.matrix_grad = at::zeros({kVocab, kWidth}, at::TensorOptions().dtype(at::kFloat));
    head.eps = 1e-5;
    head.chunk = 512;
    auto* t = targets.data_ptr<int64_t>();
    for (int64_t i = 0; i < kTokens; ++i) t[i] = i % 3 == 0 ? -100 : (i * 37) % kVocab;
  }
  at::Tensor x, targets;
  LossHead head;
};

// Float64, written out.
struct Exact {
  double loss = 0;
  at::Tensor dx, dnorm, dmatrix;
};
Exact exact_head(const Problem& p, double scale) {
  const at::Tensor x = p.x.to(at::kDouble).view({kTokens, kWidth}), w = p.head.norm.to(at::kDouble),
                   m = p.head.matrix.to(at::kDouble);
  const at::Tensor rstd = (x.square().mean(1, true) + p.head.eps).rsqrt(), normal = x * rstd;
  const at::Tensor log_p = (normal * w).mm(m.t()).log_softmax(1);
  at::Tensor grad = log_p.exp();
  Exact e;
  for (int64_t i = 0; i < kTokens; ++i) {
    const int64_t t = p.targets.view({-1})[i].item<int64_t>();
    if (t == -100) {
      grad[i].zero_();
      continue;
    }
    e.loss -= log_p[i][t].item<double>();
    grad[i][t] -= 1;
  }
  grad = grad * scale;
  e.dmatrix = grad.t().mm(normal * w);
  const at::Tensor dy = grad.mm(m);
  e.dnorm = (dy * normal).sum(0);
  const at::Tensor g = dy * w;
  e.dx = rstd * (g - normal * (g * normal).mean(1, true));
  return e;
}

void expect_near(at::ScalarType type, double tolerance) {
  for (const int64_t chunk : {512, 64, 13}) {
    Problem p(type);
    p.head.chunk = chunk;
    const Exact exact = exact_head(p, 0.01);
    const LossHeadResult ours = loss_head(p.head, p.x, p.targets, 0.01, true);
    EXPECT_NEAR(ours.loss_sum.item<double>() / exact.loss, 1, tolerance);
    EXPECT_LT(relative_error(ours.grad_input.view({kTokens, kWidth}), exact.dx), 2 * tolerance);
    EXPECT_LT(relative_error(p.head.norm_grad, exact.dnorm), 2 * tolerance);
    EXPECT_LT(relative_error(p.head.matrix_grad, exact.dmatrix), 2 * tolerance);
  }
}

TEST(LossHead, Fp32EqualsTheFormula) {
  expect_near(at::kFloat, 1e-6);
}
TEST(LossHead, Bf16IsNearTheFormula) {
  expect_near(at::kBFloat16, 4e-3);
}

TEST(LossHead, Fp16IsNearTheFormula) {
  expect_near(at::kHalf, 1e-3);
}

TEST(LossHead, GradientsAreAddedAndWantedOnesOnly) {
  Problem once(at::kBFloat16), twice(at::kBFloat16), frozen(at::kBFloat16);
  const auto first = loss_head(once.head, once.x, once.targets, 0.5, true);
  loss_head(twice.head, twice.x, twice.targets, 0.5, true);
  loss_head(twice.head, twice.x, twice.targets, 0.5, true);
  EXPECT_TRUE(twice.head.matrix_grad.equal(once.head.matrix_grad * 2));
  frozen.head.matrix_grad = at::Tensor();
  frozen.head.norm_grad = at::Tensor();
  const auto without = loss_head(frozen.head, frozen.x, frozen.targets, 0.5, true);
  EXPECT_TRUE(without.grad_input.equal(first.grad_input));
  EXPECT_EQ(without.loss_sum.item<double>(), first.loss_sum.item<double>());
}

TEST(LossHead, EvaluationGivesTheSameLossAndTouchesNothing) {
  Problem p(at::kBFloat16);
  const auto evaluated = loss_head(p.head, p.x, p.targets, 1, false);
  EXPECT_FALSE(evaluated.grad_input.defined());
  EXPECT_EQ(p.head.matrix_grad.abs().sum().item<float>(), 0);
  EXPECT_EQ(evaluated.loss_sum.item<double>(), loss_head(p.head, p.x, p.targets, 1, true).loss_sum.item<double>());
}

TEST(LossHead, NothingTrainedIsZero) {
  Problem p(at::kFloat);
  p.targets.fill_(-100);
  const auto result = loss_head(p.head, p.x, p.targets, 1, true);
  EXPECT_EQ(result.loss_sum.item<double>(), 0);
  EXPECT_EQ(result.grad_input.abs().sum().item<float>(), 0);
  EXPECT_EQ(p.head.matrix_grad.abs().sum().item<float>(), 0);
}

TEST(LossHead, NanInputGivesNanLoss) {
  Problem p(at::kBFloat16);
  p.x.view({-1})[1 * kWidth] = NAN;  // token 1 is trained
  EXPECT_TRUE(std::isnan(loss_head(p.head, p.x, p.targets, 1, true).loss_sum.item<double>()));
}

TEST(LossHead, TargetOutsideTheVocabularyIsRefused) {
  Problem p(at::kFloat);
  p.targets.view({-1})[1] = kVocab;
  EXPECT_THROW(loss_head(p.head, p.x, p.targets, 1, false), base::Error);
}

}  // namespace
}  // namespace sluice::engine
