// Optimizer state and gradients with random contents.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "base/bf16.h"
#include "base/fp16.h"
#include "gpu/adam_math.h"

namespace sluice::gpu {

enum class Master { split, fp32, fp32_and_half };

// raw: any bit pattern, NaN and infinity included, instead of plausible values. Arrays that a variant lacks are empty.
struct RandomState {
  RandomState(size_t count_, Master kind, bool tied, bool raw, WireType type_) : count(count_), type(type_), random_(count_ + raw) {
    m = values(raw, 1e-3f), v = values(raw, 1e-5f);
    if (!raw)
      for (float& x : v) x = std::abs(x);
    const std::vector<float> master = values(raw, 0.02f);
    if (kind == Master::split) {
      for (const float x : master) {
        const base::SplitFloat parts = base::split(x);
        hi.push_back(parts.hi);
        lo.push_back(parts.lo);
      }
    } else {
      p = master;
    }
    if (kind == Master::fp32_and_half) half.assign(count, 0x1234);
    grad = wire(values(raw, 1));
    if (tied) grad2 = wire(values(raw, 1));
  }

  // Sizes and constants; the arrays are the caller's to name.
  AdamRun run() const {
    AdamRun run;
    run.grad.type = type;
    run.grad_scale = 0.37f;
    run.factors = {.lr_decay = 0.9999f, .l2 = p.empty() ? 0 : 0.1f, .beta1 = 0.9f, .one_minus_beta1 = 0.1f, .beta2 = 0.95f,
                   .one_minus_beta2 = 0.05f, .eps = 1e-8f, .step_size = 1.9e-3f, .inv_sqrt_bias2 = 1.8f};
    run.count = count;
    return run;
  }

  const size_t count;
  const WireType type;
  std::vector<uint16_t> hi;
  std::vector<int16_t> lo;
  std::vector<float> p, m, v;
  std::vector<uint16_t> half;
  std::vector<std::byte> grad, grad2;  // of the wire type

 private:
  std::vector<float> values(bool raw, float scale) {
    std::vector<float> out(count);
    std::normal_distribution<float> normal(0, scale);
    for (float& x : out) x = raw ? std::bit_cast<float>(static_cast<uint32_t>(random_())) : normal(random_);
    return out;
  }
  std::vector<std::byte> wire(const std::vector<float>& from) const {
    std::vector<std::byte> out(count * wire_bytes(type));
    if (type == WireType::fp32) {
      std::memcpy(out.data(), from.data(), out.size());
    } else {
      for (size_t i = 0; i < count; ++i) {
        const uint16_t bits = type == WireType::bf16 ? base::float_to_bf16(from[i]) : base::float_to_fp16(from[i]);
        std::memcpy(out.data() + 2 * i, &bits, 2);
      }
    }
    return out;
  }

  std::mt19937 random_;
};

}  // namespace sluice::gpu
