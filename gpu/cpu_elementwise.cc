// SwiGLU, GELU, rotary embedding, conversions and fp32 accumulation.
#include "gpu/cpu_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/cpu_elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "gpu/cpu_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::gpu::cpu::HWY_NAMESPACE {

// Highway's Exp gives anything at all beyond 177, so -x stops at 88, where the result is 0 for all purposes. NaN stays.
inline VF sigmoid(VF x) {
  const VF one = hn::Set(F32(), 1.0f);
  const VF e = hn::Exp(F32(), hn::Min(hn::Neg(x), hn::Set(F32(), 88.0f)));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Div(one, hn::Add(one, e)));
}

template <class T>
void swiglu_of(const SwiGlu& op, int64_t begin, int64_t end) {
  const auto* gate = static_cast<const T*>(op.gate);
  const auto* up = static_cast<const T*>(op.up);
  auto* out = static_cast<T*>(op.out);
  for_each_vector(begin, end, [&](int64_t i, size_t n) {
    const VF g = load_any(gate + i, n);
    store_any(hn::Mul(hn::Mul(g, sigmoid(g)), load_any(up + i, n)), out + i, n);
  });
}

template <class T>
void swiglu_grad_of(const SwiGluGrad& op, int64_t begin, int64_t end) {
  const auto* gate = static_cast<const T*>(op.gate);
  const auto* up = static_cast<const T*>(op.up);
  const auto* grad_out = static_cast<const T*>(op.grad_out);
  auto* grad_gate = static_cast<T*>(op.grad_gate);
  auto* grad_up = static_cast<T*>(op.grad_up);
  const VF one = hn::Set(F32(), 1.0f);
  for_each_vector(begin, end, [&](int64_t i, size_t n) {
    const VF g = load_any(gate + i, n);
    const VF dy = load_any(grad_out + i, n);
    const VF s = sigmoid(g);
    const VF slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));  // d silu(g) / dg
    const VF u = load_any(up + i, n);
    store_any(hn::Mul(dy, hn::Mul(g, s)), grad_up + i, n);
    store_any(hn::Mul(hn::Mul(dy, u), slope), grad_gate + i, n);
  });
}

// gelu(x) = x * sigmoid(2 u), u = c * (x + a x^3): half of 1 + tanh(u) is sigmoid(2 u).
struct GeluParts {
  VF gate, slope;  // sigmoid(2 u), d(2 u) / dx
};
inline GeluParts gelu_parts(VF x) {
  constexpr float kTwoC = 1.5957691216057308f, kA = 0.044715f;  // 2 sqrt(2 / pi)
  const VF one = hn::Set(F32(), 1.0f), two_c = hn::Set(F32(), kTwoC);
  const VF square = hn::Mul(x, x);
  const VF twice_u = hn::Mul(hn::Mul(two_c, x), hn::MulAdd(square, hn::Set(F32(), kA), one));
  return {sigmoid(twice_u), hn::Mul(two_c, hn::MulAdd(square, hn::Set(F32(), 3 * kA), one))};
}

template <class T>
void gelu_of(const Gelu& op, int64_t begin, int64_t end) {
  const auto* x = static_cast<const T*>(op.x);
  auto* out = static_cast<T*>(op.out);
  for_each_vector(begin, end, [&](int64_t i, size_t n) {
    const VF v = load_any(x + i, n);
    store_any(hn::Mul(v, gelu_parts(v).gate), out + i, n);
  });
}

template <class T>
void gelu_grad_of(const GeluGrad& op, int64_t begin, int64_t end) {
  const auto* x = static_cast<const T*>(op.x);
  const auto* grad_out = static_cast<const T*>(op.grad_out);
  auto* grad_x = static_cast<T*>(op.grad_x);
  const VF one = hn::Set(F32(), 1.0f);
  for_each_vector(begin, end, [&](int64_t i, size_t n) {
    const VF v = load_any(x + i, n);
    const GeluParts p = gelu_parts(v);
    const VF slope = hn::Mul(p.gate, hn::MulAdd(hn::Mul(v, hn::Sub(one, p.gate)), p.slope, one));
    store_any(hn::Mul(load_any(grad_out + i, n), slope), grad_x + i, n);
  });
}

template <class T>
void rotary_of(const Rotary& op, int64_t begin, int64_t end) {
  const int64_t half = op.head_dim / 2, width = op.heads * op.head_dim;
  for (int64_t row = begin; row < end; ++row) {
    const float* cos = op.cos + op.positions[row] * half;
    const float* sin = op.sin + op.positions[row] * half;
    for (int64_t head = 0; head < op.heads; ++head) {
      const T* x = static_cast<const T*>(op.x) + row * width + head * op.head_dim;
      T* y = static_cast<T*>(op.y) + row * width + head * op.head_dim;
      for_each_vector(0, half, [&](int64_t i, size_t n) {
        const VF a = load_any(x + i, n), b = load_any(x + half + i, n), c = load_any(cos + i, n);
        const VF s = op.inverse ? hn::Neg(load_any(sin + i, n)) : load_any(sin + i, n);
        store_any(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), y + i, n);
        store_any(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), y + half + i, n);
      });
    }
  }
}

template <class T>
void add_of(const void* values, float* sum, int64_t begin, int64_t end) {
  const auto* v = static_cast<const T*>(values);
  for_each_vector(begin, end, [&](int64_t i, size_t n) {
    store_any(hn::Add(load_any(sum + i, n), load_any(v + i, n)), sum + i, n);
  });
}

template <class T>
void load_rows_of(const void* from, int64_t stride, float* to, int64_t rows, int64_t cols, float scale) {
  const VF factor = hn::Set(F32(), scale);
  for (int64_t row = 0; row < rows; ++row) {
    const T* x = static_cast<const T*>(from) + row * stride;
    float* y = to + row * cols;
    for_each_vector(0, cols,
                    [&](int64_t i, size_t n) { store_any(hn::Mul(load_any(x + i, n), factor), y + i, n); });
  }
}

template <class T>
void store_rows_of(const float* from, const float* row_scale, void* to, int64_t stride, int64_t rows,
                   int64_t cols) {
  for (int64_t row = 0; row < rows; ++row) {
    const VF factor = hn::Set(F32(), row_scale ? row_scale[row] : 1.0f);
    const float* x = from + row * cols;
    T* y = static_cast<T*>(to) + row * stride;
    for_each_vector(0, cols,
                    [&](int64_t i, size_t n) { store_any(hn::Mul(load_any(x + i, n), factor), y + i, n); });
  }
}

void swiglu_any(const SwiGlu& op, int64_t begin, int64_t end) {
  with_element(op.type, [&]<class T>(T) { swiglu_of<T>(op, begin, end); });
}
void swiglu_grad_any(const SwiGluGrad& op, int64_t begin, int64_t end) {
  with_element(op.type, [&]<class T>(T) { swiglu_grad_of<T>(op, begin, end); });
}
void gelu_any(const Gelu& op, int64_t begin, int64_t end) {
  with_element(op.type, [&]<class T>(T) { gelu_of<T>(op, begin, end); });
}
void gelu_grad_any(const GeluGrad& op, int64_t begin, int64_t end) {
  with_element(op.type, [&]<class T>(T) { gelu_grad_of<T>(op, begin, end); });
}
void rotary_any(const Rotary& op, int64_t begin, int64_t end) {
  with_element(op.type, [&]<class T>(T) { rotary_of<T>(op, begin, end); });
}
void add_any(Element type, const void* values, float* sum, int64_t begin, int64_t end) {
  with_element(type, [&]<class T>(T) { add_of<T>(values, sum, begin, end); });
}
void load_rows_any(Element type, const void* from, int64_t stride, float* to, int64_t rows, int64_t cols, float scale) {
  with_element(type, [&]<class T>(T) { load_rows_of<T>(from, stride, to, rows, cols, scale); });
}
void store_rows_any(Element type, const float* from, const float* scale, void* to, int64_t stride, int64_t rows, int64_t cols) {
  with_element(type, [&]<class T>(T) { store_rows_of<T>(from, scale, to, stride, rows, cols); });
}

}  // namespace sluice::gpu::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::gpu::cpu {
HWY_EXPORT(swiglu_any);
HWY_EXPORT(swiglu_grad_any);
HWY_EXPORT(gelu_any);
HWY_EXPORT(gelu_grad_any);
HWY_EXPORT(rotary_any);
HWY_EXPORT(add_any);
HWY_EXPORT(load_rows_any);
HWY_EXPORT(store_rows_any);

void swiglu(const SwiGlu& op, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(swiglu_any)(op, begin, end);
}
void swiglu_grad(const SwiGluGrad& op, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(swiglu_grad_any)(op, begin, end);
}
void gelu(const Gelu& op, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(gelu_any)(op, begin, end);
}
void gelu_grad(const GeluGrad& op, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(gelu_grad_any)(op, begin, end);
}
void rotary(const Rotary& op, int64_t begin_row, int64_t end_row) {
  HWY_DYNAMIC_DISPATCH(rotary_any)(op, begin_row, end_row);
}
void add_to_fp32(Element type, const void* values, float* sum, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(add_any)(type, values, sum, begin, end);
}
void load_rows(Element type, const void* from, int64_t stride, float* to, int64_t rows, int64_t cols,
               float scale) {
  HWY_DYNAMIC_DISPATCH(load_rows_any)(type, from, stride, to, rows, cols, scale);
}
void store_rows(Element type, const float* from, const float* row_scale, void* to, int64_t stride,
                int64_t rows, int64_t cols) {
  HWY_DYNAMIC_DISPATCH(store_rows_any)(type, from, row_scale, to, stride, rows, cols);
}
}  // namespace sluice::gpu::cpu
#endif
