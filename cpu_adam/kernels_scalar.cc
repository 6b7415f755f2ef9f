// The reference: what every vector kernel must reproduce bit for bit, and the fallback below AVX2.
#include <bit>

#include "base/bf16.h"
#include "base/fp16.h"
#include "cpu_adam/kernels.h"

namespace sluice::cpu_adam {
namespace {

float load(const Gradient& grad, size_t i) {
  if (grad.type == GradType::bf16) return base::bf16_to_float(static_cast<const uint16_t*>(grad.data)[i]);
  if (grad.type == GradType::fp16) return base::fp16_to_float(static_cast<const uint16_t*>(grad.data)[i]);
  return static_cast<const float*>(grad.data)[i];
}

float load_sum(const Gradient& grad, const Gradient& grad2, size_t i) {
  const float g = load(grad, i);
  return grad2.data == nullptr ? g : g + load(grad2, i);
}

float canonical(float x) {
  return std::isnan(x) ? std::bit_cast<float>(kCanonicalNan) : x;
}

float sign(float x) {
  return x > 0 ? 1.0f : x < 0 ? -1.0f : x;
}

void update(const Run& run) {
  const TileState& s = run.state;
  const StepGroup& c = *run.group;
  for (size_t i = 0; i < run.count; ++i) {
    float g = load_sum(run.grad, run.grad2, i) * run.grad_scale;
    float p = s.p != nullptr ? s.p[i] : base::join(s.hi[i], s.lo[i]);
    if (c.l2 != 0) g = std::fma(c.l2, p, g);
    float m = std::fma(c.one_minus_beta1, g, c.beta1 * s.m[i]), direction;
    if (s.v != nullptr) {
      const float v = std::fma(c.one_minus_beta2 * g, g, c.beta2 * s.v[i]);
      direction = m / std::fma(std::sqrt(v), c.inv_sqrt_bias2, c.eps);
      s.v[i] = canonical(v);
    } else {
      direction = sign(m);
      m = std::fma(c.one_minus_beta2, g, c.beta2 * s.m[i]);
    }
    p = std::fma(-c.step_size, direction, p * c.lr_decay);
    s.m[i] = canonical(m);
    if (s.p != nullptr) {
      s.p[i] = canonical(p);
      if (s.half != nullptr) s.half[i] = base::float_to_fp16(s.p[i]);
    } else {
      const base::SplitFloat parts = base::split(p);
      s.hi[i] = parts.hi;
      s.lo[i] = parts.lo;
    }
  }
}

double squared_norm(const Gradient& grad, const Gradient& grad2, size_t count) {
  double lanes[kNormLanes] = {};
  for (size_t i = 0; i < count; ++i) {
    const double g = load_sum(grad, grad2, i);
    lanes[i % kNormLanes] += g * g;  // the square of a float is exact in double
  }
  return sum_lanes(lanes);
}

void split(const float* p, uint16_t* hi, int16_t* lo, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const base::SplitFloat parts = base::split(p[i]);
    hi[i] = parts.hi;
    lo[i] = parts.lo;
  }
}

void join(const uint16_t* hi, const int16_t* lo, float* p, size_t count) {
  for (size_t i = 0; i < count; ++i) p[i] = base::join(hi[i], lo[i]);
}

}  // namespace

const Kernels& scalar_kernels() {
  static constexpr Kernels kKernels{"scalar", update, squared_norm, split, join};
  return kKernels;
}

}  // namespace sluice::cpu_adam
