// The layers' math in plain LibTorch operations, on any device: what a GPU runs in place of the emulated device's kernels
// (gpu/cpu_kernels.h). The same formulas and roundings: fp32 inside, rounded once; sums in an order that is the same in every run. No
// operation waits for the device. To be called without autograd.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "gpu/cpu_kernels.h"

namespace sluice::engine::tensor_math {

// Rows x [n, cols]; rstd fp32 [n].
struct NormedRows {
  at::Tensor y, rstd;
};
NormedRows rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
// Writes grad_x and adds to grad_weight (fp32); each may be undefined: not wanted.
void rms_norm_grad(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& grad_y,
                   const at::Tensor& grad_x, const at::Tensor& grad_weight);

// x [B, T, heads * head_dim], positions int64 [B, T], cos and sin fp32 [positions, head_dim / 2]; inverse: by the negative angle.
at::Tensor rotate(const at::Tensor& x, int64_t head_dim, const at::Tensor& positions, const at::Tensor& cos, const at::Tensor& sin,
                  bool inverse);

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
struct SwiGluGrads {
  at::Tensor gate, up;
};
SwiGluGrads swiglu_grad(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& grad_out);

// Rows x [n, cols]; stats fp32 [n, 2]: mean and reciprocal deviation.
struct LayerNormedRows {
  at::Tensor y, stats;
};
LayerNormedRows layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);
// As rms_norm_grad.
void layer_norm_grad(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& stats, const at::Tensor& grad_y,
                     const at::Tensor& grad_x, const at::Tensor& grad_weight, const at::Tensor& grad_bias);

at::Tensor gelu(const at::Tensor& x);
at::Tensor gelu_grad(const at::Tensor& x, const at::Tensor& grad_out);

// round(x * scale) where x is kept. The mask is a function of the key and the number of elements, not the emulated device's:
// LibTorch's generator of the device is seeded with the key.
at::Tensor dropped(const at::Tensor& x, const gpu::cpu::Dropout& dropout);
// Seeds the generator that LibTorch's operations on this device draw from.
void seed_generator(const at::Device& device, uint64_t seed);

// grad[tokens[i]] += rows[i] in fp32; rows of `pad` add nothing. rows [n, width], tokens int64 [n].
void add_rows(const at::Tensor& rows, const at::Tensor& tokens, std::optional<int64_t> pad, const at::Tensor& grad);

// fp32 logits [n, vocab] become their gradient, (softmax - onehot) * scale, when it is wanted. Returns the sum of the losses, a
// double on the device. Targets of -100 have neither.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets, double scale, bool with_grads);

}  // namespace sluice::engine::tensor_math
