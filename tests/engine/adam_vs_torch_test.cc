// Our Adam beside torch's fused fp32 AdamW, both against the same steps in float64.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "cpu_adam/adam.h"

namespace sluice::engine {
namespace {

constexpr int64_t kCount = 1 << 16;
constexpr double kLr = 1e-4, kEps = 1e-8, kDecay = 0.1;

struct TorchAdamW {
  at::Tensor p, m = at::zeros_like(p), v = at::zeros_like(p), step = at::zeros({}, at::kFloat);
  void update(const at::Tensor& gradient, double beta1, double beta2) {
    step += 1;
    at::_fused_adamw_({p}, {gradient.to(p.scalar_type())}, {m}, {v}, {}, {step}, kLr, beta1, beta2, kDecay, kEps, false, false);
  }
};

double distance(const at::Tensor& p, const at::Tensor& exact, const at::Tensor& start) {
  return ((p.to(at::kDouble) - exact).norm() / (exact - start).norm()).item<double>();
}

TEST(AdamBesideTorch, AThousandStepsStayAsCloseToFloat64) {
  const at::NoGradGuard no_grad;
  const double beta1 = 0.9;
  for (const double beta2 : {0.95, 0.999}) {
    at::manual_seed(7);
    const at::Tensor start = at::randn({kCount}) * 0.02f, scale = at::randn({kCount}).exp() * 1e-3f, signal = at::randn({kCount});
    TorchAdamW torch{start.clone()}, exact{start.to(at::kDouble)};
    const at::Tensor hi = at::zeros({kCount}, at::kShort), lo = at::zeros({kCount}, at::kShort), m = at::zeros({kCount}), v = at::zeros({kCount});
    const cpu_adam::TileState state{reinterpret_cast<uint16_t*>(hi.data_ptr<int16_t>()), lo.data_ptr<int16_t>(), nullptr, m.data_ptr<float>(), v.data_ptr<float>()};
    const cpu_adam::CpuAdam adam({.threads = 2});
    adam.split(start.data_ptr<float>(), state.hi, state.lo, kCount);
    const std::vector<cpu_adam::GroupSpan> spans{{0, kCount, 0}};
    for (uint64_t t = 1; t <= 1000; ++t) {
      const at::Tensor gradient = (scale * (signal * 0.3f + at::randn({kCount}))).to(at::kBFloat16);
      torch.update(gradient, beta1, beta2);
      exact.update(gradient, beta1, beta2);
      const std::vector<cpu_adam::StepGroup> groups{
          cpu_adam::make_step_group({.lr = kLr, .beta1 = beta1, .beta2 = beta2, .eps = kEps, .weight_decay = kDecay}, t)};
      adam.update({.state = state, .count = kCount, .grad = {gradient.data_ptr(), cpu_adam::GradType::bf16}, .spans = spans, .groups = groups});
    }
    const at::Tensor master = at::zeros({kCount});
    adam.join(state.hi, state.lo, master.data_ptr<float>(), kCount);
    const double ours = distance(master, exact.p, start.to(at::kDouble)), theirs = distance(torch.p, exact.p, start.to(at::kDouble));
    EXPECT_LE(ours, 1.05 * theirs) << "beta2 " << beta2;  // 1.2e-5 and 1.3e-5, both
    EXPECT_LT(ours, 1e-4);
    EXPECT_GT(theirs, 0);
  }
}

}  // namespace
}  // namespace sluice::engine
