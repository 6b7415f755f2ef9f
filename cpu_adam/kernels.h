// The kernels behind CpuAdam, one table per target. Internal to cpu_adam.
//
// All tables give the same bits. What makes that hold:
//   - every sum of a product is one explicit fused multiply-add, in the same order everywhere;
//   - square root and division are exact (correctly rounded), never approximations;
//   - bf16 and split conversions are integer operations (Highway's DemoteTo to bf16 truncates); those of fp16 are the
//     processor's, which round to nearest even;
//   - a NaN is stored as 0x7FC00000, because which payload survives an operation depends on operand order;
//   - the caller has set MXCSR: round to nearest, no flushing of subnormals.
#pragma once
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu_adam/adam.h"

namespace sluice::cpu_adam {

inline constexpr uint32_t kCanonicalNan = 0x7fc00000u;
inline constexpr size_t kNormLanes = 64;

// Consecutive elements of one group. All pointers are at the first of them.
struct Run {
  TileState state;
  Gradient grad, grad2;
  float grad_scale;
  const StepGroup* group;
  size_t count;
};

struct Kernels {
  const char* name;
  void (*update)(const Run& run);
  double (*squared_norm)(const Gradient& grad, const Gradient& grad2, size_t count);  // of one leaf
  void (*split)(const float* p, uint16_t* hi, int16_t* lo, size_t count);
  void (*join)(const uint16_t* hi, const int16_t* lo, float* p, size_t count);
};
const Kernels& scalar_kernels();
// Null when this CPU, or this build, has no such target.
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();

// The same arrays from element `offset` on; absent ones stay absent.
inline TileState advance(const TileState& state, size_t offset) {
  const auto at = [offset](auto* field) { return field == nullptr ? nullptr : field + offset; };
  return {at(state.hi), at(state.lo), at(state.p), at(state.m), at(state.v), at(state.half)};
}

// Second half of the leaf norm: pairs at distance 32, 16, ..., 1. Overwrites the lanes.
inline double sum_lanes(double* lanes) {
  for (size_t width = kNormLanes / 2; width > 0; width /= 2)
    for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return std::isnan(lanes[0]) ? std::numeric_limits<double>::quiet_NaN() : lanes[0];
}

// Copies of the last elements of a run or leaf, padded with zeros to a whole vector, so that a tail goes
// through the same instructions as the rest and nothing outside the span is read or written.
template <size_t kElements>
class PaddedGradient {
 public:
  PaddedGradient(const Gradient& grad, size_t count) : type_(grad.type), present_(grad.data != nullptr) {
    if (present_) std::memcpy(bytes_, grad.data, count * element_bytes(type_));
  }
  Gradient get() const { return {present_ ? bytes_ : nullptr, type_}; }

 private:
  alignas(64) std::byte bytes_[kElements * sizeof(float)] = {};
  GradType type_;
  bool present_;
};

template <size_t kElements>
class PaddedRun {
 public:
  explicit PaddedRun(const Run& tail)
      : tail_(tail), grad_(tail.grad, tail.count), grad2_(tail.grad2, tail.count) {
    for_each_field(
        [this](auto* field, auto* copy) { std::memcpy(copy, field, tail_.count * sizeof(*field)); });
  }
  Run get() {
    const bool split = tail_.state.p == nullptr;
    return {.state = {split ? hi_ : nullptr, split ? lo_ : nullptr, split ? nullptr : p_, m_, tail_.state.v == nullptr ? nullptr : v_,
                      tail_.state.half == nullptr ? nullptr : half_},
            .grad = grad_.get(),
            .grad2 = grad2_.get(),
            .grad_scale = tail_.grad_scale,
            .group = tail_.group,
            .count = kElements};
  }
  void store() {
    for_each_field(
        [this](auto* field, auto* copy) { std::memcpy(field, copy, tail_.count * sizeof(*field)); });
  }

 private:
  template <class Copy>
  void for_each_field(const Copy& copy) {
    if (tail_.state.p == nullptr) {
      copy(tail_.state.hi, hi_);
      copy(tail_.state.lo, lo_);
    } else {
      copy(tail_.state.p, p_);
    }
    copy(tail_.state.m, m_);
    if (tail_.state.v != nullptr) copy(tail_.state.v, v_);
    if (tail_.state.half != nullptr) copy(tail_.state.half, half_);
  }

  const Run tail_;
  PaddedGradient<kElements> grad_, grad2_;
  alignas(64) float p_[kElements] = {};
  alignas(64) float m_[kElements] = {};
  alignas(64) float v_[kElements] = {};
  alignas(64) uint16_t hi_[kElements] = {};
  alignas(64) int16_t lo_[kElements] = {};
  alignas(64) uint16_t half_[kElements] = {};
};

}  // namespace sluice::cpu_adam
