#include "engine/rotary.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/bf16.h"
#include "base/fp16.h"
#include "engine/cpu_dispatch.h"
#include "engine/tensor_math.h"

namespace sluice::engine {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRows = 32;

// Not inputs of the autograd Function.
struct Angles {
  at::Tensor positions, cos, sin;
};

at::Tensor rotate(const at::Tensor& x, int64_t head_dim, const Angles& angles, bool inverse) {
  if (x.is_cuda()) return tensor_math::rotate(x, head_dim, angles.positions, angles.cos, angles.sin, inverse);
  const at::Tensor y = at::empty_like(x);
  const gpu::cpu::Rotary op{element_type(x),
                            x.size(2) / head_dim,
                            head_dim,
                            x.const_data_ptr(),
                            y.data_ptr(),
                            angles.positions.const_data_ptr<int64_t>(),
                            angles.cos.const_data_ptr<float>(),
                            angles.sin.const_data_ptr<float>(),
                            inverse};
  parallel_pieces(x.size(0) * x.size(1), kRows,
                  [&](int64_t begin, int64_t end) { gpu::cpu::rotary(op, begin, end); });
  return y;
}

struct RotaryFunction : torch::autograd::Function<RotaryFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, int64_t head_dim,
                            const Angles& angles) {
    ctx->saved_data["head_dim"] = head_dim;
    ctx->save_for_backward({angles.positions, angles.cos, angles.sin});
    return rotate(x, head_dim, angles, false);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const int64_t head_dim = ctx->saved_data["head_dim"].toInt();
    return {rotate(grads[0].contiguous(), head_dim, {saved[0], saved[1], saved[2]}, true), {}, {}};
  }
};

// Long waves are slowed by `factor`, short ones kept, those between are mixed.
float llama3_frequency(float frequency, const RopeScaling& scaling) {
  const double wave = 2 * std::numbers::pi / frequency;
  const auto context = static_cast<double>(scaling.original_max_position);
  if (wave < context / scaling.high_freq_factor) return frequency;
  if (wave > context / scaling.low_freq_factor) return static_cast<float>(frequency / scaling.factor);
  const double share =
      (context / wave - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return static_cast<float>((1 - share) * frequency / scaling.factor + share * frequency);
}

}  // namespace

std::vector<float> rotary_frequencies(const HfConfig& config) {
  std::vector<float> frequencies(static_cast<size_t>(config.head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim);
    const auto frequency = static_cast<float>(std::pow(config.rope_theta, -exponent));
    switch (config.rope_scaling.type) {
      case RopeScaling::Type::none:
        frequencies[i] = frequency;
        break;
      case RopeScaling::Type::linear:
        frequencies[i] = static_cast<float>(frequency / config.rope_scaling.factor);
        break;
      case RopeScaling::Type::llama3:
        frequencies[i] = llama3_frequency(frequency, config.rope_scaling);
        break;
    }
  }
  return frequencies;
}

void RotaryTable::extend(int64_t positions, const at::TensorOptions& like) {
  const at::ScalarType type = like.dtype().toScalarType();
  if (cos_.defined() && cos_.size(0) >= positions && rounded_to_ == type) return;
  const auto half = static_cast<int64_t>(frequencies_.size());
  const auto on_host = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor host_cos = at::empty({positions, half}, on_host), host_sin = at::empty({positions, half}, on_host);
  rounded_to_ = type;
  const auto round = [&](float value) {
    if (type == at::kBFloat16) return base::bf16_to_float(base::float_to_bf16(value));
    return type == at::kHalf ? base::fp16_to_float(base::float_to_fp16(value)) : value;
  };
  float *cos = host_cos.data_ptr<float>(), *sin = host_sin.data_ptr<float>();
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p) * frequencies_[static_cast<size_t>(i)];
      cos[p * half + i] = round(std::cos(angle));
      sin[p * half + i] = round(std::sin(angle));
    }
  }
  cos_ = host_cos.to(like.device());  // waits on a GPU; the dry run is the first to ask
  sin_ = host_sin.to(like.device());
}

at::Tensor rotary(const at::Tensor& x, int64_t head_dim, const at::Tensor& positions,
                  const RotaryTable& table) {
  return RotaryFunction::apply(x, head_dim, Angles{positions, table.cos(), table.sin()});
}

}  // namespace sluice::engine
