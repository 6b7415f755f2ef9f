// LayerNorm and its gradient.
#include "gpu/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/cpu_layer_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "gpu/cpu_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::gpu::cpu::HWY_NAMESPACE {

// Lanes beyond a row's end must not join its sums.
inline VF first_lanes(VF value, size_t n) {
  return n == hn::Lanes(F32()) ? value : hn::IfThenElseZero(hn::FirstN(F32(), n), value);
}

template <class T>
void layer_norm_of(const LayerNorm& op, int64_t begin, int64_t end) {
  const auto *w = static_cast<const T*>(op.weight), *b = static_cast<const T*>(op.bias);
  const F32 d;
  const auto cols = static_cast<float>(op.cols);
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(op.x) + row * op.cols;
    T* y = static_cast<T*>(op.y) + row * op.cols;
    VF sum = hn::Zero(d);
    for_each_vector(0, op.cols, [&](int64_t i, size_t n) { sum = hn::Add(sum, load_any(x + i, n)); });
    const float mean = sum_lanes(sum) / cols;
    const VF center = hn::Set(d, mean);
    VF squares = hn::Zero(d);
    for_each_vector(0, op.cols, [&](int64_t i, size_t n) {
      const VF v = first_lanes(hn::Sub(load_any(x + i, n), center), n);
      squares = hn::MulAdd(v, v, squares);
    });
    const float rstd = 1.0f / std::sqrt(sum_lanes(squares) / cols + op.eps);
    op.stats[2 * row] = mean;
    op.stats[2 * row + 1] = rstd;
    const VF scale = hn::Set(d, rstd);
    for_each_vector(0, op.cols, [&](int64_t i, size_t n) {
      const VF normal = hn::Mul(hn::Sub(load_any(x + i, n), center), scale);
      store_any(hn::MulAdd(normal, load_any(w + i, n), load_any(b + i, n)), y + i, n);
    });
  }
}

// With n = (x - mean) * rstd and g = grad_y * weight: grad_x = rstd * (g - mean(g) - n * mean(g * n)).
template <class T>
void layer_norm_grad_of(const LayerNormGrad& op, int64_t begin, int64_t end) {
  const auto* w = static_cast<const T*>(op.weight);
  const F32 d;
  for (float* sum : {op.grad_weight, op.grad_bias})
    for (int64_t i = 0; sum != nullptr && i < op.cols; ++i) sum[i] = 0;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(op.x) + row * op.cols;
    const T* dy = static_cast<const T*>(op.grad_y) + row * op.cols;
    const VF center = hn::Set(d, op.stats[2 * row]), rstd = hn::Set(d, op.stats[2 * row + 1]);
    const auto normal = [&](int64_t i, size_t n) { return hn::Mul(hn::Sub(load_any(x + i, n), center), rstd); };
    if (op.grad_weight) {
      for_each_vector(0, op.cols, [&](int64_t i, size_t n) {
        float* sum = op.grad_weight + i;
        store_any(hn::MulAdd(load_any(dy + i, n), normal(i, n), load_any(sum, n)), sum, n);
      });
    }
    if (op.grad_bias) {
      for_each_vector(0, op.cols, [&](int64_t i, size_t n) {
        float* sum = op.grad_bias + i;
        store_any(hn::Add(load_any(dy + i, n), load_any(sum, n)), sum, n);
      });
    }
    if (!op.grad_x) continue;
    VF sum = hn::Zero(d), dot = hn::Zero(d);
    for_each_vector(0, op.cols, [&](int64_t i, size_t n) {  // past the end dy is zero
      const VF g = hn::Mul(load_any(dy + i, n), load_any(w + i, n));
      sum = hn::Add(sum, g);
      dot = hn::MulAdd(g, normal(i, n), dot);
    });
    const auto cols = static_cast<float>(op.cols);
    const VF mean = hn::Set(d, sum_lanes(sum) / cols), mean_dot = hn::Set(d, sum_lanes(dot) / cols);
    T* dx = static_cast<T*>(op.grad_x) + row * op.cols;
    for_each_vector(0, op.cols, [&](int64_t i, size_t n) {
      const VF g = hn::Mul(load_any(dy + i, n), load_any(w + i, n));
      store_any(hn::Mul(rstd, hn::NegMulAdd(normal(i, n), mean_dot, hn::Sub(g, mean))), dx + i, n);
    });
  }
}

void layer_norm_any(const LayerNorm& op, int64_t begin, int64_t end) {
  with_element(op.type, [&]<class T>(T) { layer_norm_of<T>(op, begin, end); });
}
void layer_norm_grad_any(const LayerNormGrad& op, int64_t begin, int64_t end) {
  with_element(op.type, [&]<class T>(T) { layer_norm_grad_of<T>(op, begin, end); });
}

}  // namespace sluice::gpu::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::gpu::cpu {
HWY_EXPORT(layer_norm_any);
HWY_EXPORT(layer_norm_grad_any);

void layer_norm(const LayerNorm& op, int64_t begin_row, int64_t end_row) {
  HWY_DYNAMIC_DISPATCH(layer_norm_any)(op, begin_row, end_row);
}
void layer_norm_grad(const LayerNormGrad& op, int64_t begin_row, int64_t end_row) {
  HWY_DYNAMIC_DISPATCH(layer_norm_grad_any)(op, begin_row, end_row);
}
}  // namespace sluice::gpu::cpu
#endif
