// Adam or Lion on split state and the leaf norm, element by element: one text for nvcc and for the host's compiler, so that what the tests
// prove about the host's bits holds for the device's too. Plain C++17.
//
// The bits are those of cpu_adam (cpu_adam/adam.h says the formula): every operation rounded as written, never contracted; square
// root and division exact; subnormals kept (nvcc's defaults, which gpu/CMakeLists.txt does not change).
#pragma once
#include "gpu/float_bits.h"
#include "gpu/half_math.h"
#include "gpu/wire_type.h"

namespace sluice::gpu {

inline constexpr size_t kLeafElements = 65536;  // unit of norms, on a grid from the first element of a tile
inline constexpr size_t kNormLanes = 64;        // a leaf's squares are added in lanes (index mod 64), then pairwise

// Of one parameter group in one step; the fields of cpu_adam::StepGroup.
struct AdamFactors {
  float lr_decay, l2;
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
  float step_size, inv_sqrt_bias2;
};

// One or two rounded contributions (second: of a tied matrix), added in fp32. Device memory.
struct WireGradient {
  const void* first = nullptr;
  const void* second = nullptr;  // may be null
  WireType type = WireType::bf16;
};

// Consecutive elements of one group. Device memory; the master is hi and lo, or p (the others are null). half may be null: p
// rounded to fp16, only written. v is null: Lion.
struct AdamRun {
  uint16_t* hi = nullptr;
  int16_t* lo = nullptr;
  float* p = nullptr;
  uint16_t* half = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  WireGradient grad;
  float grad_scale = 1;
  AdamFactors factors{};
  size_t count = 0;
};

namespace math {

// base::float_to_bf16, base::split and base::join.
SLUICE_HOST_DEVICE uint16_t to_bf16(float value) {
  const uint32_t bits = to_bits(value);
  if (is_nan(bits)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

SLUICE_HOST_DEVICE float join(uint16_t hi, int16_t lo) {
  return from_bits((static_cast<uint32_t>(hi) << 16) + static_cast<uint32_t>(static_cast<int32_t>(lo)));
}

SLUICE_HOST_DEVICE float load(const void* data, WireType type, size_t i) {
  if (type == WireType::bf16) return from_bits(static_cast<uint32_t>(static_cast<const uint16_t*>(data)[i]) << 16);
  if (type == WireType::fp16) return half_to_float(static_cast<const uint16_t*>(data)[i]);
  return static_cast<const float*>(data)[i];
}

SLUICE_HOST_DEVICE float load(const WireGradient& grad, size_t i) {
  const float first = load(grad.first, grad.type, i);
  return grad.second == nullptr ? first : add(first, load(grad.second, grad.type, i));
}

// The squares of lane `lane` of a leaf that starts at element `begin`: added in index order. Exact squares: a float has 24 bits.
SLUICE_HOST_DEVICE double lane_sum(const WireGradient& grad, size_t begin, size_t count, size_t lane) {
  double sum = 0;
#if defined(__CUDA_ARCH__)
#pragma unroll 16
#endif
  for (size_t i = lane; i < count; i += kNormLanes) {
    const double g = load(grad, begin + i);
    sum = add(sum, mul(g, g));
  }
  return sum;
}

SLUICE_HOST_DEVICE float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }

SLUICE_HOST_DEVICE void adam_element(const AdamRun& run, size_t i) {
  const AdamFactors& c = run.factors;
  float g = mul(load(run.grad, i), run.grad_scale);
  float p = run.p != nullptr ? run.p[i] : join(run.hi[i], run.lo[i]);
  if (c.l2 != 0) g = mul_add(c.l2, p, g);
  float m = mul_add(c.one_minus_beta1, g, mul(c.beta1, run.m[i])), direction;
  if (run.v != nullptr) {
    const float v = mul_add(mul(c.one_minus_beta2, g), g, mul(c.beta2, run.v[i]));
    direction = divide(m, mul_add(root(v), c.inv_sqrt_bias2, c.eps));
    run.v[i] = canonical(v);
  } else {
    direction = sign(m);
    m = mul_add(c.one_minus_beta2, g, mul(c.beta2, run.m[i]));
  }
  p = canonical(mul_add(-c.step_size, direction, mul(p, c.lr_decay)));
  run.m[i] = canonical(m);
  if (run.p != nullptr) {
    run.p[i] = p;
    if (run.half != nullptr) run.half[i] = to_half(p);
  } else {
    const uint32_t bits = to_bits(p);
    run.hi[i] = static_cast<uint16_t>((bits + 0x8000u) >> 16);
    run.lo[i] = static_cast<int16_t>(bits & 0xffffu);
  }
}

}  // namespace math
}  // namespace sluice::gpu
