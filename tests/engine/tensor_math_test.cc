// The GPU's math, run here on CPU tensors, against the emulated device's kernels.
#include "engine/tensor_math.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "engine/cpu_dispatch.h"
#include "engine/embedding.h"
#include "engine/layer_norm.h"
#include "engine/rms_norm.h"
#include "engine/rotary.h"
#include "math_fixture.h"

namespace sluice::engine {
namespace {

class TensorMath : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor random(at::IntArrayRef sizes) const { return at::randn(sizes).to(GetParam()); }
  // Sums are added in another order, and a value near a rounding border may fall to its other side.
  double tolerance() const { return GetParam() == at::kFloat ? 2e-6 : 3e-3; }
  void expect_near(const at::Tensor& a, const at::Tensor& b) const {
    ASSERT_EQ(a.scalar_type(), b.scalar_type());
    EXPECT_LT(relative_error(a, b), tolerance());
  }
  const at::NoGradGuard no_grad_;
};

TEST_P(TensorMath, RmsNorm) {
  const at::Tensor x = random({37, 96}), weight = random({96}), dy = random({37, 96});
  const NormedRows expected = rms_norm_rows(x, weight, 1e-5);
  const tensor_math::NormedRows normed = tensor_math::rms_norm(x, weight, 1e-5);
  expect_near(normed.y, expected.y);
  EXPECT_LT(relative_error(normed.rstd, expected.rstd), 1e-6);
  const at::Tensor dx = at::empty_like(x), expected_dx = at::empty_like(x);
  const at::Tensor dw = at::ones({96}), expected_dw = at::ones({96});  // added to
  tensor_math::rms_norm_grad(x, weight, normed.rstd, dy, dx, dw);
  rms_norm_rows_grad(x, weight, expected.rstd, dy, expected_dx, expected_dw);
  expect_near(dx, expected_dx);
  EXPECT_LT(relative_error(dw, expected_dw), tolerance());
  tensor_math::rms_norm_grad(x, weight, normed.rstd, dy, {}, {});
}

TEST_P(TensorMath, LayerNorm) {
  const at::Tensor x = random({37, 96}) + 2, weight = random({96}), bias = random({96}), dy = random({37, 96});
  const LayerNormedRows expected = layer_norm_rows(x, weight, bias, 1e-5);
  const tensor_math::LayerNormedRows normed = tensor_math::layer_norm(x, weight, bias, 1e-5);
  expect_near(normed.y, expected.y);
  EXPECT_LT(relative_error(normed.stats, expected.stats), 1e-6);
  const at::Tensor dx = at::empty_like(x), expected_dx = at::empty_like(x);
  const at::Tensor dw = at::ones({96}), expected_dw = at::ones({96}), db = at::ones({96}), expected_db = at::ones({96});
  tensor_math::layer_norm_grad(x, weight, normed.stats, dy, dx, dw, db);
  layer_norm_rows_grad(x, weight, expected.stats, dy, expected_dx, expected_dw, expected_db);
  expect_near(dx, expected_dx);
  EXPECT_LT(relative_error(dw, expected_dw), 1e-5);
  EXPECT_LT(relative_error(db, expected_db), 1e-5);
  tensor_math::layer_norm_grad(x, weight, normed.stats, dy, {}, {}, {});
  layer_norm_rows_grad(x, weight, expected.stats, dy, {}, {}, {});
}

TEST_P(TensorMath, Gelu) {
  const at::Tensor x = random({11, 130}) * 3, dy = random({11, 130}), out = at::empty_like(x), dx = at::empty_like(x);
  gpu::cpu::gelu({element_type(x), x.const_data_ptr(), out.data_ptr()}, 0, x.numel());
  gpu::cpu::gelu_grad({element_type(x), x.const_data_ptr(), dy.const_data_ptr(), dx.data_ptr()}, 0, x.numel());
  expect_near(tensor_math::gelu(x), out);
  expect_near(tensor_math::gelu_grad(x, dy), dx);
}

TEST_P(TensorMath, DroppedIsAFunctionOfTheKey) {
  const at::Tensor x = at::ones({300, 200}).to(GetParam());
  const auto dropout = [](uint64_t key) { return gpu::cpu::Dropout{key, static_cast<uint32_t>(0.2 * 0x1p32), 1.25f}; };
  const at::Tensor y = tensor_math::dropped(x, dropout(8));
  at::randn({100});  // others draw from the same generator
  EXPECT_TRUE(at::equal(tensor_math::dropped(x, dropout(8)), y));
  EXPECT_FALSE(at::equal(tensor_math::dropped(x, dropout(9)), y));
  EXPECT_EQ(((y == 0) + (y == 1.25)).sum().item<int64_t>(), x.numel());
  EXPECT_NEAR((y == 0).to(at::kFloat).mean().item<double>(), 0.2, 0.008);
}

TEST_P(TensorMath, RotaryHasTheKernelsBits) {
  RotaryTable table(rotary_frequencies(tiny_config()));
  const int64_t dim = tiny_config().head_dim;
  const at::Tensor x = random({2, 9, 3 * dim});
  const at::Tensor positions = at::stack({at::arange(9), at::arange(9).remainder(4)});
  table.extend(9, x.options());
  const at::Tensor y = tensor_math::rotate(x, dim, positions, table.cos(), table.sin(), false);
  EXPECT_TRUE(at::equal(y, rotary(x, dim, positions, table)));
  expect_near(tensor_math::rotate(y, dim, positions, table.cos(), table.sin(), true), x);
}

TEST_P(TensorMath, SwiGlu) {
  const at::Tensor gate = random({11, 130}), up = random({11, 130}), dy = random({11, 130});
  const at::Tensor out = at::empty_like(gate), dgate = at::empty_like(gate), dup = at::empty_like(gate);
  gpu::cpu::swiglu({element_type(gate), gate.const_data_ptr(), up.const_data_ptr(), out.data_ptr()}, 0, gate.numel());
  gpu::cpu::swiglu_grad({element_type(gate), gate.const_data_ptr(), up.const_data_ptr(), dy.const_data_ptr(), dgate.data_ptr(),
                         dup.data_ptr()},
                        0, gate.numel());
  expect_near(tensor_math::swiglu(gate, up), out);
  const tensor_math::SwiGluGrads grads = tensor_math::swiglu_grad(gate, up, dy);
  expect_near(grads.gate, dgate);
  expect_near(grads.up, dup);
}

TEST_P(TensorMath, EmbeddingGradientsAddInTokenOrder) {
  const at::Tensor rows = random({4, 50, 24}), tokens = at::randint(7, {4, 50}, at::kLong);
  const at::Tensor sum = at::ones({7, 24}), expected = at::ones({7, 24});
  tensor_math::add_rows(rows.view({200, 24}), tokens.view({200}), 3, sum);
  add_row_grads(rows, tokens, 3, expected);
  EXPECT_LT(relative_error(sum, expected), 1e-6);
  EXPECT_TRUE(at::equal(sum.select(0, 3), at::ones({24})));
}

TEST_P(TensorMath, CrossEntropy) {
  constexpr int64_t kRows = 13, kVocab = 101;
  const at::Tensor logits = at::randn({kRows, kVocab}) * 3, expected = logits.clone();
  at::Tensor targets = at::randint(kVocab, {kRows}, at::kLong);
  targets.select(0, 5).fill_(-100);
  double loss = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto target = targets.select(0, row).item<int64_t>();
    if (target < 0) {
      expected.select(0, row).zero_();
    } else {
      loss += gpu::cpu::cross_entropy_row(gpu::cpu::Element::fp32, expected.select(0, row).data_ptr(), kVocab, target, true, 0.25f);
    }
  }
  const at::Tensor untouched = logits.clone();
  EXPECT_NEAR(tensor_math::cross_entropy(untouched, targets, 0.25, false).item<double>() / loss, 1, 1e-6);
  EXPECT_TRUE(at::equal(untouched, logits));
  EXPECT_NEAR(tensor_math::cross_entropy(logits, targets, 0.25, true).item<double>() / loss, 1, 1e-6);
  EXPECT_LT(relative_error(logits, expected), 2e-6);
  EXPECT_TRUE(at::equal(logits.select(0, 5), at::zeros({kVocab})));
}

INSTANTIATE_TEST_SUITE_P(Types, TensorMath, testing::Values(at::kFloat, at::kBFloat16, at::kHalf), [](const auto& type) {
                           return type.param == at::kFloat ? "fp32" : type.param == at::kHalf ? "fp16" : "bf16";
                         });

}  // namespace
}  // namespace sluice::engine
