// The math of a GPU against the CPU's; skipped without a GPU. What it measures goes into the test's report.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/attention.h"
#include "engine/document_groups.h"
#include "engine/fused_attention.h"
#include "tests/engine/gpu_fixture.h"
#include "tests/engine/math_fixture.h"

namespace sluice::engine {
namespace {

using Pieces = std::vector<std::vector<int32_t>>;
const at::Device kGpu(at::kCUDA, 0);

at::Tensor starts_of(const Pieces& pieces, int64_t tokens) {
  const int64_t room = 2 * static_cast<int64_t>(pieces.size()) * tokens;
  const at::Tensor starts = at::empty({room}, at::TensorOptions().dtype(at::kInt));
  write_document_starts(pieces, tokens, {starts.data_ptr<int32_t>(), static_cast<size_t>(room)});
  return starts.to(kGpu);
}

MicroBatch on_gpu(const MicroBatch& batch) {
  return {batch.tokens.to(kGpu),  batch.targets.to(kGpu), batch.positions.to(kGpu), batch.pieces,
          batch.trained, starts_of(batch.pieces, batch.tokens.size(1)), batch.random};
}

class GpuMath : public GpuTest {};

struct AttentionOutcome {
  at::Tensor out, dq, dk, dv, plain;  // plain: without a graph
};

AttentionOutcome attend(const at::Device& device, at::ScalarType type, const AttentionShape& shape, const Pieces& pieces, int64_t tokens) {
  const auto rows = static_cast<int64_t>(pieces.size());
  const auto leaf = [&](int64_t heads, uint64_t seed) {
    at::Tensor t = at::empty({rows, tokens, heads * shape.head_dim}, at::TensorOptions().dtype(at::kFloat));
    float* p = t.data_ptr<float>();
    for (int64_t i = 0; i < t.numel(); ++i) p[i] = static_cast<float>((static_cast<uint64_t>(i) * 2654435761u + seed * 40503u) % 2001) / 1000 - 1;
    return t.to(type).to(device).set_requires_grad(true);
  };
  const at::Tensor q = leaf(shape.heads, 1), k = leaf(shape.kv_heads, 2), v = leaf(shape.kv_heads, 3), grad = leaf(shape.heads, 4);
  const at::Tensor starts = device.is_cuda() ? starts_of(pieces, tokens) : at::Tensor();
  const auto call = [&] { return device.is_cuda() ? fused_attention(q, k, v, shape, pieces, starts) : attention(q, k, v, shape, pieces); };
  AttentionOutcome outcome;
  {
    const at::NoGradGuard no_grad;
    outcome.plain = call();
  }
  const at::AutoGradMode with_grad(true);
  const at::Tensor out = call();
  torch::autograd::backward({out}, {grad.detach()});
  outcome.out = out.detach(), outcome.dq = q.grad(), outcome.dk = k.grad(), outcome.dv = v.grad();
  return outcome;
}

TEST_F(GpuMath, FusedAttentionFollowsTheCpusWholeAndPacked) {
  const AttentionShape grouped{8, 2, 64}, plain{4, 4, 32};
  Pieces many(2);
  for (int32_t i = 0; i < 512; i += 8) many[0].push_back(i), many[1].push_back(i);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat})
    for (const AttentionShape& shape : {grouped, plain})
      for (const Pieces& pieces : {Pieces{{0}, {0}}, Pieces{{0, 1, 200}, {0, 300, 301}}, many}) {
        const AttentionOutcome cpu = attend(at::kCPU, type, shape, pieces, 512), gpu = attend(kGpu, type, shape, pieces, 512);
        const double tolerance = type == at::kFloat ? 1e-4 : 2e-2;  // the fused kernels round probabilities too
        EXPECT_LT(relative_error(gpu.out.cpu(), cpu.out), tolerance);
        EXPECT_LT(relative_error(gpu.dq.cpu(), cpu.dq), tolerance);
        EXPECT_LT(relative_error(gpu.dk.cpu(), cpu.dk), tolerance);
        EXPECT_LT(relative_error(gpu.dv.cpu(), cpu.dv), tolerance);
        EXPECT_TRUE(gpu.plain.equal(gpu.out)) << "without a graph another kernel ran";
        const AttentionOutcome again = attend(kGpu, type, shape, pieces, 512);
        EXPECT_TRUE(again.dq.equal(gpu.dq) && again.dk.equal(gpu.dk) && again.dv.equal(gpu.dv)) << "bits vary";
      }
}

// The flash kernel has a path of its own for lengths of one, with another layout of what the backward needs.
TEST_F(GpuMath, FusedAttentionTakesDocumentsOfOneToken) {
  Pieces single(2);
  for (int32_t i = 0; i < 16; ++i) single[0].push_back(i), single[1].push_back(i);
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    const AttentionOutcome cpu = attend(at::kCPU, type, {8, 2, 64}, single, 16), gpu = attend(kGpu, type, {8, 2, 64}, single, 16);
    EXPECT_LT(relative_error(gpu.out.cpu(), cpu.out), 1e-2);
    EXPECT_LT(relative_error(gpu.dv.cpu(), cpu.dv), 1e-2);
  }
}

TEST_F(GpuMath, AModelsLossAndGradientsFollowTheCpus) {
  for (const auto& [config, type] : {std::pair{tiny_config(), at::kFloat}, {tiny_config(), at::kBFloat16}, {tiny_gpt2(0), at::kFloat},
                                     {tiny_gpt2(0), at::kBFloat16}}) {
    MathModel cpu(config, type), gpu(config, type);
    cpu.randomize(3), gpu.randomize(3);
    gpu.to(kGpu);
    const MicroBatch batch = random_batch(config, 2, 96, {{0, 40}, {0}}, 5);
    const double cpu_loss = cpu.step({.batches = {batch, batch}}), gpu_loss = gpu.step({.batches = {on_gpu(batch), on_gpu(batch)}});
    const double tolerance = type == at::kFloat ? 1e-4 : 6e-2;
    EXPECT_NEAR(gpu_loss / cpu_loss, 1, type == at::kFloat ? 1e-5 : 1e-2);
    const auto expected = cpu.gradients(), got = gpu.gradients();
    double worst = 0;
    for (const auto& [name, gradient] : expected) {
      const double error = relative_error(got.at(name).cpu(), gradient);
      worst = std::max(worst, error);
      EXPECT_LT(error, tolerance) << name;
    }
    RecordProperty(type == at::kFloat ? "worst_error_fp32" : "worst_error_bf16", fmt::format("{:.3g}", worst));
    const double again = gpu.step({.batches = {on_gpu(batch), on_gpu(batch)}, .keep_graphs = true});
    EXPECT_EQ(again, gpu_loss);
    for (const auto& [name, gradient] : gpu.gradients()) EXPECT_TRUE(gradient.equal(got.at(name))) << name;
  }
}

// A GPU's masks are not the CPU's; they must be the same when a layer runs again, and in the next run.
TEST_F(GpuMath, DropoutIsTheSameInEveryRunOfALayer) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    MathModel model(tiny_gpt2(0.1), type);
    model.randomize(3);
    model.to(kGpu);
    MicroBatch batch = on_gpu(random_batch(model.config, 2, 96, {{0, 40}, {0}}, 5)), other = batch;
    batch.random = RandomKey{1, 2, 3}, other.random = RandomKey{1, 2, 4};
    const double loss = model.step({.batches = {batch, other}});
    const auto gradients = model.gradients();
    EXPECT_EQ(model.step({.batches = {batch, other}, .keep_graphs = true}), loss);
    for (const auto& [name, gradient] : model.gradients()) EXPECT_TRUE(gradient.equal(gradients.at(name))) << name;
    EXPECT_NE(model.step({.batches = {batch, batch}}), loss);
    batch.random.reset();
    const double whole = model.step({.batches = {batch}});
    EXPECT_NEAR(loss / whole, 1, 0.2);
  }
}

}  // namespace
}  // namespace sluice::engine
