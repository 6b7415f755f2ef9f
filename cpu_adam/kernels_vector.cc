// The vector kernels: one body, compiled by Highway for AVX2 and AVX-512 (its AVX3).
#include "cpu_adam/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_adam/kernels_vector.cc"
// They have no fused multiply-add. Highway insists on a baseline, which stays without code.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu_adam {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<float> kF32;
constexpr hn::RebindToUnsigned<decltype(kF32)> kU32;
constexpr hn::RebindToSigned<decltype(kF32)> kI32;
constexpr hn::Rebind<uint16_t, decltype(kF32)> kU16;
constexpr hn::Rebind<int16_t, decltype(kF32)> kI16;
constexpr hn::Rebind<hwy::float16_t, decltype(kF32)> kF16;
constexpr hn::ScalableTag<double> kF64;
constexpr size_t kVector = hn::MaxLanes(kF32);
constexpr size_t kVector64 = hn::MaxLanes(kF64);
using F32 = hn::Vec<decltype(kF32)>;
using F64 = hn::Vec<decltype(kF64)>;

// Where gradients come from. Load(d, i): the fp32 values of elements i and following.
struct Bf16Source {
  const uint16_t* data;
  explicit Bf16Source(const Gradient& grad) : data(static_cast<const uint16_t*>(grad.data)) {}
  template <class D>
  HWY_INLINE hn::Vec<D> Load(D d, size_t i) const {
    const hn::RebindToUnsigned<D> wide;
    const hn::Rebind<uint16_t, D> narrow;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, data + i))));
  }
};
struct Fp16Source {
  const uint16_t* data;
  explicit Fp16Source(const Gradient& grad) : data(static_cast<const uint16_t*>(grad.data)) {}
  template <class D>
  HWY_INLINE hn::Vec<D> Load(D d, size_t i) const {
    const hn::Rebind<uint16_t, D> narrow;
    const hn::Rebind<hwy::float16_t, D> half;
    return hn::PromoteTo(d, hn::BitCast(half, hn::LoadU(narrow, data + i)));
  }
};
struct Fp32Source {
  const float* data;
  explicit Fp32Source(const Gradient& grad) : data(static_cast<const float*>(grad.data)) {}
  template <class D>
  HWY_INLINE hn::Vec<D> Load(D d, size_t i) const {
    return hn::LoadU(d, data + i);
  }
};
template <class First, class Second>
struct SumSource {
  First first;
  Second second;
  template <class D>
  HWY_INLINE hn::Vec<D> Load(D d, size_t i) const {
    return hn::Add(first.Load(d, i), second.Load(d, i));
  }
};

// Calls Kernel::Call(source, args...) with the source that fits the gradients.
template <class Kernel, class First, class... Args>
HWY_INLINE auto WithSecond(const First& first, const Gradient& grad2, const Args&... args) {
  if (grad2.data == nullptr) return Kernel::Call(first, args...);
  if (grad2.type == GradType::bf16)
    return Kernel::Call(SumSource<First, Bf16Source>{first, Bf16Source(grad2)}, args...);
  if (grad2.type == GradType::fp16)
    return Kernel::Call(SumSource<First, Fp16Source>{first, Fp16Source(grad2)}, args...);
  return Kernel::Call(SumSource<First, Fp32Source>{first, Fp32Source(grad2)}, args...);
}
template <class Kernel, class... Args>
HWY_INLINE auto WithSource(const Gradient& grad, const Gradient& grad2, const Args&... args) {
  if (grad.type == GradType::bf16) return WithSecond<Kernel>(Bf16Source(grad), grad2, args...);
  if (grad.type == GradType::fp16) return WithSecond<Kernel>(Fp16Source(grad), grad2, args...);
  return WithSecond<Kernel>(Fp32Source(grad), grad2, args...);
}

HWY_INLINE F32 Canonical(F32 x) {
  return hn::IfThenElse(hn::IsNaN(x), hn::BitCast(kF32, hn::Set(kU32, kCanonicalNan)), x);
}

HWY_INLINE F32 LoadJoined(const uint16_t* hi, const int16_t* lo) {
  const auto high = hn::ShiftLeft<16>(hn::PromoteTo(kU32, hn::LoadU(kU16, hi)));
  const auto low = hn::BitCast(kU32, hn::PromoteTo(kI32, hn::LoadU(kI16, lo)));
  return hn::BitCast(kF32, hn::Add(high, low));
}

HWY_INLINE void StoreSplit(F32 canonical, uint16_t* hi, int16_t* lo) {
  const auto bits = hn::BitCast(kU32, canonical);
  const auto high = hn::ShiftRight<16>(hn::Add(bits, hn::Set(kU32, 0x8000u)));
  const auto low = hn::ShiftRight<16>(
      hn::BitCast(kI32, hn::ShiftLeft<16>(bits)));  // sign-extended, so that DemoteTo is exact
  hn::StoreU(hn::DemoteTo(kU16, hn::BitCast(kI32, high)), kU16, hi);
  hn::StoreU(hn::DemoteTo(kI16, low), kI16, lo);
}

HWY_INLINE void StoreHalf(F32 canonical, uint16_t* half) {
  hn::StoreU(hn::BitCast(kU16, hn::DemoteTo(kF16, canonical)), kU16, half);
}

HWY_INLINE F32 Sign(F32 x) {
  const auto zero = hn::Zero(kF32), one = hn::Set(kF32, 1.0f);
  return hn::IfThenElse(hn::Gt(x, zero), one, hn::IfThenElse(hn::Lt(x, zero), hn::Neg(one), x));
}

enum class Rule { adam, lion };
enum class Master { split, fp32, fp32_and_half };

template <Rule kRule, Master kMaster>
struct UpdateKernel {
  // run.count is a multiple of kVector.
  template <class Source>
  static HWY_INLINE void Call(const Source& source, const Run& run) {
    const TileState s = run.state;
    const StepGroup c = *run.group;
    const auto scale = hn::Set(kF32, run.grad_scale), decay = hn::Set(kF32, c.lr_decay),
               l2 = hn::Set(kF32, c.l2);
    const auto beta1 = hn::Set(kF32, c.beta1), one_minus_beta1 = hn::Set(kF32, c.one_minus_beta1);
    const auto beta2 = hn::Set(kF32, c.beta2), one_minus_beta2 = hn::Set(kF32, c.one_minus_beta2);
    const auto eps = hn::Set(kF32, c.eps), inv_sqrt_bias2 = hn::Set(kF32, c.inv_sqrt_bias2);
    const auto step_size = hn::Set(kF32, c.step_size);
    const bool has_l2 = c.l2 != 0;
    for (size_t i = 0; i < run.count; i += kVector) {
      auto g = hn::Mul(source.Load(kF32, i), scale);
      F32 p;
      if constexpr (kMaster == Master::split) {
        p = LoadJoined(s.hi + i, s.lo + i);
      } else {
        p = hn::LoadU(kF32, s.p + i);
      }
      if (has_l2) g = hn::MulAdd(l2, p, g);
      const auto before = hn::LoadU(kF32, s.m + i);
      auto m = hn::MulAdd(one_minus_beta1, g, hn::Mul(beta1, before));
      F32 direction;
      if constexpr (kRule == Rule::adam) {
        const auto v = hn::MulAdd(hn::Mul(one_minus_beta2, g), g, hn::Mul(beta2, hn::LoadU(kF32, s.v + i)));
        direction = hn::Div(m, hn::MulAdd(hn::Sqrt(v), inv_sqrt_bias2, eps));
        hn::StoreU(Canonical(v), kF32, s.v + i);
      } else {
        direction = Sign(m);
        m = hn::MulAdd(one_minus_beta2, g, hn::Mul(beta2, before));
      }
      p = Canonical(hn::NegMulAdd(step_size, direction, hn::Mul(p, decay)));
      hn::StoreU(Canonical(m), kF32, s.m + i);
      if constexpr (kMaster == Master::split) {
        StoreSplit(p, s.hi + i, s.lo + i);
      } else {
        hn::StoreU(p, kF32, s.p + i);
        if constexpr (kMaster == Master::fp32_and_half) StoreHalf(p, s.half + i);
      }
    }
  }
};

template <Rule kRule>
HWY_INLINE void UpdateBy(const Run& run) {
  if (run.state.p == nullptr) return WithSource<UpdateKernel<kRule, Master::split>>(run.grad, run.grad2, run);
  if (run.state.half != nullptr) return WithSource<UpdateKernel<kRule, Master::fp32_and_half>>(run.grad, run.grad2, run);
  return WithSource<UpdateKernel<kRule, Master::fp32>>(run.grad, run.grad2, run);
}

void UpdateVectors(const Run& run) {
  run.state.v != nullptr ? UpdateBy<Rule::adam>(run) : UpdateBy<Rule::lion>(run);
}

void Update(const Run& run) {
  const size_t whole = run.count / kVector * kVector;
  Run part = run;
  part.count = whole;
  UpdateVectors(part);
  if (whole == run.count) return;
  part.state = advance(run.state, whole);
  part.grad = advance(run.grad, whole);
  part.grad2 = advance(run.grad2, whole);
  part.count = run.count - whole;
  PaddedRun<kVector> tail(part);
  UpdateVectors(tail.get());
  tail.store();
}

struct NormKernel {
  // count is a multiple of kNormLanes.
  template <class Source>
  static HWY_INLINE void Call(const Source& source, const size_t& count, double* const& lanes) {
    F64 sums[kNormLanes / kVector64];
    for (size_t j = 0; j < kNormLanes / kVector64; ++j) sums[j] = hn::Load(kF64, lanes + j * kVector64);
    const hn::Rebind<float, decltype(kF64)> half;
    for (size_t i = 0; i < count; i += kNormLanes) {
#pragma GCC unroll 16
      for (size_t j = 0; j < kNormLanes / kVector64; ++j) {
        const auto g = hn::PromoteTo(kF64, source.Load(half, i + j * kVector64));
        sums[j] = hn::MulAdd(
            g, g, sums[j]);  // the square of a float is exact in double, so fused or not is the same
      }
    }
    for (size_t j = 0; j < kNormLanes / kVector64; ++j) hn::Store(sums[j], kF64, lanes + j * kVector64);
  }
};

double SquaredNorm(const Gradient& grad, const Gradient& grad2, size_t count) {
  alignas(64) double lanes[kNormLanes] = {};
  double* const at = lanes;
  const size_t whole = count / kNormLanes * kNormLanes;
  WithSource<NormKernel>(grad, grad2, whole, at);
  if (whole != count) {
    const PaddedGradient<kNormLanes> tail(advance(grad, whole), count - whole);
    const PaddedGradient<kNormLanes> tail2(advance(grad2, whole), count - whole);
    WithSource<NormKernel>(tail.get(), tail2.get(), kNormLanes, at);
  }
  return sum_lanes(lanes);
}

void Split(const float* p, uint16_t* hi, int16_t* lo, size_t count) {
  size_t i = 0;
  for (; i + kVector <= count; i += kVector) StoreSplit(Canonical(hn::LoadU(kF32, p + i)), hi + i, lo + i);
  if (i == count) return;
  float p_tail[kVector] = {};
  uint16_t hi_tail[kVector];
  int16_t lo_tail[kVector];
  std::memcpy(p_tail, p + i, (count - i) * sizeof(*p));
  StoreSplit(Canonical(hn::LoadU(kF32, p_tail)), hi_tail, lo_tail);
  std::memcpy(hi + i, hi_tail, (count - i) * sizeof(*hi));
  std::memcpy(lo + i, lo_tail, (count - i) * sizeof(*lo));
}

void Join(const uint16_t* hi, const int16_t* lo, float* p, size_t count) {
  size_t i = 0;
  for (; i + kVector <= count; i += kVector) hn::StoreU(LoadJoined(hi + i, lo + i), kF32, p + i);
  if (i == count) return;
  uint16_t hi_tail[kVector] = {};
  int16_t lo_tail[kVector] = {};
  float p_tail[kVector];
  std::memcpy(hi_tail, hi + i, (count - i) * sizeof(*hi));
  std::memcpy(lo_tail, lo + i, (count - i) * sizeof(*lo));
  hn::StoreU(LoadJoined(hi_tail, lo_tail), kF32, p_tail);
  std::memcpy(p + i, p_tail, (count - i) * sizeof(*p));
}

const Kernels& VectorKernels() {
  static constexpr Kernels kKernels{HWY_TARGET == HWY_AVX2 ? "AVX2" : "AVX-512", Update, SquaredNorm, Split,
                                    Join};
  return kKernels;
}

#endif  // a vector target
}  // namespace HWY_NAMESPACE
}  // namespace sluice::cpu_adam
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu_adam {

const Kernels* avx2_kernels() {
#if HWY_TARGETS & HWY_AVX2
  if (hwy::SupportedTargets() & HWY_AVX2) return &N_AVX2::VectorKernels();
#endif
  return nullptr;
}

const Kernels* avx512_kernels() {
#if HWY_TARGETS & HWY_AVX3
  if (hwy::SupportedTargets() & HWY_AVX3) return &N_AVX3::VectorKernels();
#endif
  return nullptr;
}

}  // namespace sluice::cpu_adam
#endif  // HWY_ONCE
