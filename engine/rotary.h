// Rotary position embedding: halves of each head rotated by position * frequency.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "engine/hf_config.h"

namespace sluice::engine {

// Inverse frequencies [head_dim / 2], scaled as the config says.
std::vector<float> rotary_frequencies(const HfConfig& config);

// cos and sin for positions [0, n), computed in fp32 and rounded to the compute type, as transformers does;
// kept as fp32.
class RotaryTable {
 public:
  explicit RotaryTable(std::vector<float> frequencies) : frequencies_(std::move(frequencies)) {}
  void extend(int64_t positions, const at::TensorOptions& like);  // makes [0, positions) valid
  const at::Tensor& cos() const { return cos_; }
  const at::Tensor& sin() const { return sin_; }

 private:
  std::vector<float> frequencies_;
  at::Tensor cos_, sin_;
  at::ScalarType rounded_to_ = at::kFloat;
};

// x [B, T, heads * head_dim], positions int64 [B, T], all below the table's end.
at::Tensor rotary(const at::Tensor& x, int64_t head_dim, const at::Tensor& positions,
                  const RotaryTable& table);

}  // namespace sluice::engine
