// Vector loads and stores of bf16, fp16 and fp32 rows, for the cpu_*.cc kernels. Included once per Highway target.
#if defined(SLUICE_GPU_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_GPU_CPU_SIMD_INL_H_
#undef SLUICE_GPU_CPU_SIMD_INL_H_
#else
#define SLUICE_GPU_CPU_SIMD_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "base/bf16.h"
#include "base/fp16.h"
#include "gpu/cpu_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::gpu::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF = hn::Vec<F32>;
using U32 = hn::Repartition<uint32_t, F32>;
using I32 = hn::Repartition<int32_t, F32>;
using U16 = hn::Rebind<uint16_t, F32>;

// Elements in memory.
struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

inline float value_of(float x) {
  return x;
}
inline float value_of(Bf16 x) {
  return base::bf16_to_float(x.bits);
}
inline float value_of(Fp16 x) {
  return base::fp16_to_float(x.bits);
}

template <class T>
inline T as(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return {base::float_to_bf16(x)};
  } else {
    return {base::float_to_fp16(x)};
  }
}

// body(T()) with the T of an element type.
template <class Body>
inline auto with_element(Element type, const Body& body) {
  switch (type) {
    case Element::bf16: return body(Bf16());
    case Element::fp16: return body(Fp16());
    case Element::fp32: break;
  }
  return body(0.0f);
}

inline VF load(const float* from) {
  return hn::LoadU(F32(), from);
}

inline VF load(const Bf16* from) {
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), hn::LoadU(U16(), &from->bits))));
}

// Integers and one exact product, on every target: base::fp16_to_float says how.
inline VF load(const Fp16* from) {
  const U32 du;
  const F32 d;
  const auto half = hn::PromoteTo(du, hn::LoadU(U16(), &from->bits));
  const auto magnitude = hn::And(half, hn::Set(du, 0x7fffu));
  const auto wide = hn::BitCast(du, hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f)));
  const auto special = hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(du, 0x7bffu)), hn::Set(du, 0x7f800000u));
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
  return hn::BitCast(d, hn::Or(hn::Or(wide, special), sign));
}

inline void store(VF value, float* to) {
  hn::StoreU(value, F32(), to);
}

// Rounds to nearest even in integers; a NaN stays a quiet NaN. Returns the bf16 pattern in the upper half.
inline hn::Vec<U32> round_bits(VF value) {
  const U32 du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
}

inline void store(VF value, Bf16* to) {
  const auto high = hn::BitCast(I32(), hn::ShiftRight<16>(round_bits(value)));
  hn::StoreU(hn::DemoteTo(U16(), high), U16(), &to->bits);
}

// base::float_to_fp16, lane by lane.
inline void store(VF value, Fp16* to) {
  const U32 du;
  const F32 d;
  const auto bits = hn::BitCast(du, value);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const auto rebiased = hn::Sub(magnitude, hn::Set(du, 112u << 23));
  const auto odd = hn::And(hn::ShiftRight<13>(rebiased), hn::Set(du, 1u));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(rebiased, hn::Set(du, 0xfffu)), odd));
  const auto shifted = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
  const auto subnormal = hn::Sub(hn::BitCast(du, shifted), hn::Set(du, 0x3f000000u));
  auto half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000u)), subnormal, normal);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477fffffu)), hn::Set(du, 0x7c00u), half);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7f800000u)), hn::Set(du, 0x7e00u), half);
  half = hn::Or(half, hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u)));
  hn::StoreU(hn::DemoteTo(U16(), hn::BitCast(I32(), half)), U16(), &to->bits);
}

// The value as `T` would hold it.
template <class T>
inline VF rounded(VF value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return hn::BitCast(F32(), hn::And(round_bits(value), hn::Set(U32(), 0xffff0000u)));
  } else {
    HWY_ALIGN Fp16 buffer[HWY_MAX_BYTES / 4];
    store(value, buffer);
    return load(buffer);
  }
}

// Tails: through a buffer, so that a tail element gets the same operations as the others.
template <class T>
inline VF load_part(const T* from, size_t count) {
  HWY_ALIGN T buffer[HWY_MAX_BYTES / 4] = {};
  for (size_t i = 0; i < count; ++i) buffer[i] = from[i];
  return load(buffer);
}

template <class T>
inline void store_part(VF value, T* to, size_t count) {
  HWY_ALIGN T buffer[HWY_MAX_BYTES / 4];
  store(value, buffer);
  for (size_t i = 0; i < count; ++i) to[i] = buffer[i];
}

// Calls body(i, count) over [begin, end) in steps of a vector; count is the vector length except at the tail.
template <class Body>
inline void for_each_vector(int64_t begin, int64_t end, Body&& body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) body(i, static_cast<size_t>(lanes));
  if (i < end) body(i, static_cast<size_t>(end - i));
}

template <class T>
inline VF load_any(const T* from, size_t count) {
  return count == hn::Lanes(F32()) ? load(from) : load_part(from, count);
}

template <class T>
inline void store_any(VF value, T* to, size_t count) {
  if (count == hn::Lanes(F32())) {
    store(value, to);
  } else {
    store_part(value, to, count);
  }
}

// exp that keeps a NaN (Highway's gives 0), so that poisoned memory shows in the loss.
inline VF exp(VF x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(F32(), x));
}

inline float sum_lanes(VF value) {
  return hn::GetLane(hn::SumOfLanes(F32(), value));
}
inline float max_lanes(VF value) {
  return hn::GetLane(hn::MaxOfLanes(F32(), value));
}

}  // namespace sluice::gpu::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per-target guard
