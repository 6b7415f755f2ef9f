// A tile with random contents, guard zones around every array, and its update.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "base/bf16.h"
#include "base/fp16.h"
#include "cpu_adam/adam.h"

namespace sluice::cpu_adam {

inline std::vector<Target> all_targets() {
  std::vector<Target> targets;
  for (Target target : {Target::scalar, Target::avx2, Target::avx512})
    if (is_supported(target)) targets.push_back(target);
  return targets;
}

inline const char* name(Target target) {
  return target == Target::scalar ? "scalar" : target == Target::avx2 ? "avx2" : "avx512";
}

// `count` elements between guard zones; `shift` moves the first one off its natural alignment.
template <class T>
class Guarded {
 public:
  static constexpr size_t kGuard = 64;
  Guarded() = default;
  Guarded(size_t count, size_t shift) : all_(count + shift + 2 * kGuard), shift_(shift), count_(count) {
    std::memset(all_.data(), 0xa5, all_.size() * sizeof(T));
  }
  T* data() { return all_.empty() ? nullptr : all_.data() + kGuard + shift_; }
  T& operator[](size_t i) { return data()[i]; }
  size_t size() const { return count_; }
  // Guards included.
  bool same_bits(const Guarded& other) const {
    return all_.size() == other.all_.size() &&
           (all_.empty() || std::memcmp(all_.data(), other.all_.data(), all_.size() * sizeof(T)) == 0);
  }

 private:
  std::vector<T> all_;
  size_t shift_ = 0, count_ = 0;
};

struct TileCase {
  size_t count = 0;
  size_t shift = 0;  // misalignment of all arrays, in elements
  bool split = true;
  bool half = false;  // with !split: an fp16 copy of the master beside it
  bool lion = false;  // no v
  GradType grad = GradType::bf16;
  std::optional<GradType> grad2;
  bool raw_bits = false;  // any bit pattern, NaN and infinity included, instead of plausible values
  uint64_t seed = 1;
  std::vector<GroupSpan> spans;   // empty: one span over all
  std::vector<StepGroup> groups;  // empty: default_group()
  float grad_scale = 0.37f;
};

inline StepGroup default_group() {
  return make_step_group({.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1}, 7);
}

class TileData {
 public:
  explicit TileData(const TileCase& c) : case_(c), m(c.count, c.shift), v(c.lion ? Guarded<float>() : m), random_(c.seed) {
    if (case_.spans.empty() && c.count > 0) case_.spans = {{0, c.count, 0}};
    if (case_.groups.empty()) case_.groups = {default_group()};
    Guarded<float> master(c.count, c.shift);
    for (size_t i = 0; i < c.count; ++i) {
      master[i] = value(0.02f);
      m[i] = value(1e-3f);
      if (!c.lion) v[i] = c.raw_bits ? value(1) : std::abs(value(1e-5f));
    }
    if (c.split) {
      hi = Guarded<uint16_t>(c.count, c.shift);
      lo = Guarded<int16_t>(c.count, c.shift);
      for (size_t i = 0; i < c.count; ++i) {
        const base::SplitFloat parts = base::split(master[i]);
        hi[i] = parts.hi;
        lo[i] = parts.lo;
      }
    } else {
      p = master;
      if (c.half) half = Guarded<uint16_t>(c.count, c.shift);
    }
    fill_gradient(c.grad, grad16, grad32);
    if (c.grad2) fill_gradient(*c.grad2, second16, second32);
  }

  TileUpdate update(LeafHashes* hashes = nullptr) {
    return {.state = {hi.data(), lo.data(), p.data(), m.data(), v.data(), half.data()},
            .count = case_.count,
            .grad = gradient(case_.grad, grad16, grad32),
            .grad2 = case_.grad2 ? gradient(*case_.grad2, second16, second32) : Gradient{},
            .grad_scale = case_.grad_scale,
            .spans = case_.spans,
            .groups = case_.groups,
            .hashes = hashes};
  }

  float master(size_t i) { return case_.split ? base::join(hi[i], lo[i]) : p[i]; }
  float gradient_sum(size_t i) {
    const auto load = [i](GradType type, auto& g16, auto& g32) {
      return type == GradType::bf16 ? base::bf16_to_float(g16[i]) : type == GradType::fp16 ? base::fp16_to_float(g16[i]) : g32[i];
    };
    const float g = load(case_.grad, grad16, grad32);
    return case_.grad2 ? g + load(*case_.grad2, second16, second32) : g;
  }

  bool same_state(const TileData& o) const {
    return hi.same_bits(o.hi) && lo.same_bits(o.lo) && p.same_bits(o.p) && m.same_bits(o.m) && v.same_bits(o.v) && half.same_bits(o.half);
  }
  // State and gradients, guards and gaps included.
  bool same_bits(const TileData& o) const {
    return same_state(o) && grad16.same_bits(o.grad16) && grad32.same_bits(o.grad32) &&
           second16.same_bits(o.second16) && second32.same_bits(o.second32);
  }

 private:
  TileCase case_;

 public:
  Guarded<uint16_t> hi;
  Guarded<int16_t> lo;
  Guarded<float> p, m, v;
  Guarded<uint16_t> half;
  Guarded<uint16_t> grad16, second16;
  Guarded<float> grad32, second32;

 private:
  float value(float scale) {
    if (case_.raw_bits) return std::bit_cast<float>(static_cast<uint32_t>(random_()));
    return scale * std::normal_distribution<float>()(random_);
  }
  void fill_gradient(GradType type, Guarded<uint16_t>& g16, Guarded<float>& g32) {
    if (type != GradType::fp32) {
      g16 = Guarded<uint16_t>(case_.count, case_.shift);
      const auto narrow = type == GradType::bf16 ? base::float_to_bf16 : base::float_to_fp16;
      for (size_t i = 0; i < case_.count; ++i) g16[i] = case_.raw_bits ? static_cast<uint16_t>(random_()) : narrow(value(1e-2f));
    } else {
      g32 = Guarded<float>(case_.count, case_.shift);
      for (size_t i = 0; i < case_.count; ++i) g32[i] = value(1e-2f);
    }
  }
  static Gradient gradient(GradType type, Guarded<uint16_t>& g16, Guarded<float>& g32) {
    if (type != GradType::fp32) return {g16.data(), type};
    return {g32.data(), type};
  }

  std::mt19937 random_;
};

// ||p - p64|| / ||p64 - p0|| of the masters; exact[i].p is the i-th in double.
template <class Exact>
double relative_drift(TileData& data, const std::vector<Exact>& exact, const std::vector<double>& start) {
  double error = 0, moved = 0;
  for (size_t i = 0; i < start.size(); ++i) {
    error += std::pow(data.master(i) - exact[i].p, 2);
    moved += std::pow(exact[i].p - start[i], 2);
  }
  EXPECT_GT(moved, 0);
  return std::sqrt(error / moved);
}

}  // namespace sluice::cpu_adam
