// Row kernels: RMSNorm, the softmax of attention tiles, cross entropy.
#include "gpu/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/cpu_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "gpu/cpu_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::gpu::cpu::HWY_NAMESPACE {

template <class T>
void rms_norm_of(const RmsNorm& op, int64_t begin, int64_t end) {
  const auto* w = static_cast<const T*>(op.weight);
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(op.x) + row * op.cols;
    T* y = static_cast<T*>(op.y) + row * op.cols;
    VF squares = hn::Zero(F32());
    for_each_vector(0, op.cols, [&](int64_t i, size_t n) {
      const VF v = load_any(x + i, n);
      squares = hn::MulAdd(v, v, squares);
    });
    const float rstd = 1.0f / std::sqrt(sum_lanes(squares) / static_cast<float>(op.cols) + op.eps);
    op.rstd[row] = rstd;
    const VF scale = hn::Set(F32(), rstd);
    for_each_vector(0, op.cols, [&](int64_t i, size_t n) {
      const VF normal = rounded<T>(hn::Mul(load_any(x + i, n), scale));
      store_any(hn::Mul(normal, load_any(w + i, n)), y + i, n);
    });
  }
}

// With n = x * rstd and g = grad_y * weight: grad_x = rstd * (g - n * mean(g * n)); grad_weight = sum of
// grad_y * round(n).
template <class T>
void rms_norm_grad_of(const RmsNormGrad& op, int64_t begin, int64_t end) {
  const auto* w = static_cast<const T*>(op.weight);
  const F32 d;
  if (op.grad_weight) {
    for (int64_t i = 0; i < op.cols; ++i) op.grad_weight[i] = 0;
  }
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(op.x) + row * op.cols;
    const T* dy = static_cast<const T*>(op.grad_y) + row * op.cols;
    const VF rstd = hn::Set(d, op.rstd[row]);
    if (op.grad_weight) {
      for_each_vector(0, op.cols, [&](int64_t i, size_t n) {
        const VF normal = rounded<T>(hn::Mul(load_any(x + i, n), rstd));
        store_any(hn::MulAdd(load_any(dy + i, n), normal, load_any(op.grad_weight + i, n)),
                  op.grad_weight + i, n);
      });
    }
    if (!op.grad_x) continue;
    VF dot = hn::Zero(d);
    for_each_vector(0, op.cols, [&](int64_t i, size_t n) {
      const VF g = hn::Mul(load_any(dy + i, n), load_any(w + i, n));
      dot = hn::MulAdd(g, hn::Mul(load_any(x + i, n), rstd), dot);
    });
    const VF mean = hn::Set(d, sum_lanes(dot) / static_cast<float>(op.cols));
    T* dx = static_cast<T*>(op.grad_x) + row * op.cols;
    for_each_vector(0, op.cols, [&](int64_t i, size_t n) {
      const VF g = hn::Mul(load_any(dy + i, n), load_any(w + i, n));
      const VF normal = hn::Mul(load_any(x + i, n), rstd);
      store_any(hn::Mul(rstd, hn::NegMulAdd(normal, mean, g)), dx + i, n);
    });
  }
}

inline void zero_from(float* row, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) row[i] = 0;
}

inline VF max_any(VF best, VF v, size_t n) {
  return n == hn::Lanes(F32()) ? hn::Max(best, v)
                               : hn::IfThenElse(hn::FirstN(F32(), n), hn::Max(best, v), best);
}

inline VF add_any(VF sum, VF v, size_t n) {
  return n == hn::Lanes(F32()) ? hn::Add(sum, v) : hn::IfThenElse(hn::FirstN(F32(), n), hn::Add(sum, v), sum);
}

void attention_softmax_of(const AttentionTile& tile, float* inverse_sum, float* log_sum_exp) {
  const F32 d;
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* row = tile.scores + r * tile.stride;
    const int64_t visible = tile.visible + r;
    VF best = hn::Set(d, -std::numeric_limits<float>::infinity());
    for_each_vector(0, visible, [&](int64_t i, size_t n) { best = max_any(best, load_any(row + i, n), n); });
    const float max = max_lanes(best);
    const VF shift = hn::Set(d, max);
    VF sum = hn::Zero(d);
    for_each_vector(0, visible, [&](int64_t i, size_t n) {
      const VF e = exp(hn::Sub(load_any(row + i, n), shift));
      sum = add_any(sum, e, n);
      store_any(e, row + i, n);
    });
    zero_from(row, visible, tile.keys);
    const float total = sum_lanes(sum);
    inverse_sum[r] = 1.0f / total;
    log_sum_exp[r] = max + std::log(total);
  }
}

void attention_softmax_grad_of(const AttentionTile& tile, const float* log_sum_exp, float* grad_p) {
  const F32 d;
  for (int64_t r = 0; r < tile.rows; ++r) {
    float* row = tile.scores + r * tile.stride;
    float* dp = grad_p + r * tile.stride;
    const int64_t visible = tile.visible + r;
    const VF shift = hn::Set(d, log_sum_exp[r]);
    VF dot = hn::Zero(d);
    for_each_vector(0, visible, [&](int64_t i, size_t n) {
      const VF p = exp(hn::Sub(load_any(row + i, n), shift));
      dot = add_any(dot, hn::Mul(p, load_any(dp + i, n)), n);
      store_any(p, row + i, n);
    });
    const VF mean = hn::Set(d, sum_lanes(dot));
    for_each_vector(0, visible, [&](int64_t i, size_t n) {
      store_any(hn::Mul(load_any(row + i, n), hn::Sub(load_any(dp + i, n), mean)), dp + i, n);
    });
    zero_from(row, visible, tile.keys);
    zero_from(dp, visible, tile.keys);
  }
}

// Sums in four vectors, so that long rows keep their precision.
template <class T>
double cross_entropy_of(void* data, int64_t cols, int64_t target, bool gradient, float scale) {
  const F32 d;
  auto* x = static_cast<T*>(data);
  VF best = hn::Set(d, -std::numeric_limits<float>::infinity());
  for_each_vector(0, cols, [&](int64_t i, size_t n) { best = max_any(best, load_any(x + i, n), n); });
  const float max = max_lanes(best);
  const VF shift = hn::Set(d, max);
  VF sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 4 * lanes <= cols; i += 4 * lanes) {
    for (int k = 0; k < 4; ++k) sums[k] = hn::Add(sums[k], exp(hn::Sub(load(x + i + k * lanes), shift)));
  }
  for_each_vector(i, cols, [&](int64_t j, size_t n) {
    sums[0] = add_any(sums[0], exp(hn::Sub(load_any(x + j, n), shift)), n);
  });
  const float sum = sum_lanes(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
  const double log_sum_exp = static_cast<double>(max) + std::log(static_cast<double>(sum));
  const double logit = value_of(x[target]);
  if (!gradient) return log_sum_exp - logit;
  const VF factor = hn::Set(d, scale / sum);
  for_each_vector(0, cols, [&](int64_t j, size_t n) {
    store_any(hn::Mul(exp(hn::Sub(load_any(x + j, n), shift)), factor), x + j, n);
  });
  const auto p = static_cast<float>(std::exp(logit - log_sum_exp));
  x[target] = as<T>((p - 1.0f) * scale);
  return log_sum_exp - logit;
}

void rms_norm_any(const RmsNorm& op, int64_t begin, int64_t end) {
  with_element(op.type, [&]<class T>(T) { rms_norm_of<T>(op, begin, end); });
}
void rms_norm_grad_any(const RmsNormGrad& op, int64_t begin, int64_t end) {
  with_element(op.type, [&]<class T>(T) { rms_norm_grad_of<T>(op, begin, end); });
}
double cross_entropy_any(Element type, void* x, int64_t cols, int64_t target, bool gradient, float scale) {
  return with_element(type, [&]<class T>(T) { return cross_entropy_of<T>(x, cols, target, gradient, scale); });
}

}  // namespace sluice::gpu::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::gpu::cpu {
HWY_EXPORT(rms_norm_any);
HWY_EXPORT(rms_norm_grad_any);
HWY_EXPORT(attention_softmax_of);
HWY_EXPORT(attention_softmax_grad_of);
HWY_EXPORT(cross_entropy_any);

void rms_norm(const RmsNorm& op, int64_t begin_row, int64_t end_row) {
  HWY_DYNAMIC_DISPATCH(rms_norm_any)(op, begin_row, end_row);
}
void rms_norm_grad(const RmsNormGrad& op, int64_t begin_row, int64_t end_row) {
  HWY_DYNAMIC_DISPATCH(rms_norm_grad_any)(op, begin_row, end_row);
}
void attention_softmax(const AttentionTile& tile, float* inverse_sum, float* log_sum_exp) {
  HWY_DYNAMIC_DISPATCH(attention_softmax_of)(tile, inverse_sum, log_sum_exp);
}
void attention_softmax_grad(const AttentionTile& tile, const float* log_sum_exp, float* grad_p) {
  HWY_DYNAMIC_DISPATCH(attention_softmax_grad_of)(tile, log_sum_exp, grad_p);
}
double cross_entropy_row(Element type, void* logits, int64_t cols, int64_t target, bool gradient,
                         float scale) {
  return HWY_DYNAMIC_DISPATCH(cross_entropy_any)(type, logits, cols, target, gradient, scale);
}
}  // namespace sluice::gpu::cpu
#endif
