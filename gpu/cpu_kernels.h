// Elementwise and row kernels of the emulated device, over raw pointers. Single-threaded: the caller hands
// each thread a range of rows or elements. A row's result depends on nothing but the row, so the split over
// threads never changes a bit. All arithmetic is in fp32; stores round once (to nearest even), loads are
// exact.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sluice::gpu::cpu {

enum class Element : uint8_t { bf16, fp16, fp32 };

// y = round(x * rstd) * weight, rstd = 1 / sqrt(mean(x^2) + eps). Rows are contiguous.
struct RmsNorm {
  Element type;
  int64_t cols;
  float eps;
  const void* x;
  const void* weight;  // [cols]
  void* y;
  float* rstd;  // [rows]
};
void rms_norm(const RmsNorm& op, int64_t begin_row, int64_t end_row);

struct RmsNormGrad {
  Element type;
  int64_t cols;
  const void* x;
  const void* weight;
  const float* rstd;
  const void* grad_y;
  void* grad_x;        // null: not wanted
  float* grad_weight;  // null: not wanted; [cols], overwritten with the sum over the rows of this call, in
                       // row order
};
void rms_norm_grad(const RmsNormGrad& op, int64_t begin_row, int64_t end_row);

// y = round((x - mean) * rstd * weight + bias), rstd = 1 / sqrt(variance + eps), the variance with divisor cols. Rows
// are contiguous.
struct LayerNorm {
  Element type;
  int64_t cols;
  float eps;
  const void* x;
  const void* weight;  // [cols]
  const void* bias;    // [cols]
  void* y;
  float* stats;  // [rows][2]: mean, rstd
};
void layer_norm(const LayerNorm& op, int64_t begin_row, int64_t end_row);

struct LayerNormGrad {
  Element type;
  int64_t cols;
  const void* x;
  const void* weight;
  const float* stats;
  const void* grad_y;
  void* grad_x;        // null: not wanted
  float* grad_weight;  // null: not wanted; [cols], overwritten with the sum over the rows of this call, in row order
  float* grad_bias;    // the same
};
void layer_norm_grad(const LayerNormGrad& op, int64_t begin_row, int64_t end_row);

// Rotates the two halves of each head: [a, b] -> [a cos - b sin, b cos + a sin]; inverse: by the negative
// angle. A row is one token: `heads` heads of `head_dim`, contiguous. Tables are [position][head_dim / 2].
struct Rotary {
  Element type;
  int64_t heads, head_dim;
  const void* x;
  void* y;
  const int64_t* positions;  // [rows]
  const float* cos;
  const float* sin;
  bool inverse;
};
void rotary(const Rotary& op, int64_t begin_row, int64_t end_row);

// out = silu(gate) * up, over elements.
struct SwiGlu {
  Element type;
  const void* gate;
  const void* up;
  void* out;
};
void swiglu(const SwiGlu& op, int64_t begin, int64_t end);

struct SwiGluGrad {
  Element type;
  const void* gate;
  const void* up;
  const void* grad_out;
  void* grad_gate;
  void* grad_up;
};
void swiglu_grad(const SwiGluGrad& op, int64_t begin, int64_t end);

// out = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), over elements: GPT-2's GELU.
struct Gelu {
  Element type;
  const void* x;
  void* out;
};
void gelu(const Gelu& op, int64_t begin, int64_t end);

struct GeluGrad {
  Element type;
  const void* x;
  const void* grad_out;
  void* grad_x;
};
void gelu_grad(const GeluGrad& op, int64_t begin, int64_t end);

// sum[i] += values[i].
void add_to_fp32(Element type, const void* values, float* sum, int64_t begin, int64_t end);

// Rows of `cols` elements between a strided matrix of `type` and a dense fp32 matrix; strides in elements.
void load_rows(Element type, const void* from, int64_t stride, float* to, int64_t rows, int64_t cols,
               float scale);
// to = round(from * row_scale[row]); row_scale null: 1.
void store_rows(Element type, const float* from, const float* row_scale, void* to, int64_t stride,
                int64_t rows, int64_t cols);

// One query tile of causal attention. Row r of `scores` [rows][stride] sees its first `visible + r` keys, of
// `keys`.
struct AttentionTile {
  int64_t rows, keys, stride, visible;
  float* scores;
};
// scores -> exp(score - max), zero where not visible; inverse_sum[r] = 1 / sum; log_sum_exp[r] = max +
// log(sum).
void attention_softmax(const AttentionTile& tile, float* inverse_sum, float* log_sum_exp);
// scores -> p = exp(score - log_sum_exp[r]); grad_p -> p * (grad_p - sum(p * grad_p)); zero where not
// visible.
void attention_softmax_grad(const AttentionTile& tile, const float* log_sum_exp, float* grad_p);

// Which elements of a matrix a dropout keeps is a function of key, row and column alone: those whose random word is at least
// `threshold`, which is the probability of a drop in units of 2^-32. What is kept is multiplied by `scale`, 1 / (1 - p).
struct Dropout {
  uint64_t key = 0;
  uint32_t threshold = 0;  // 0: nothing is dropped
  float scale = 1;
  bool active() const { return threshold > 0; }
};

// The random words of columns 64 * chunk ... 64 * chunk + 63 of a row: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", 2011) of the counters (16 * chunk + i, 0, row), i < 16; word w of counter i is that of column 64 * chunk + 16 w + i.
void dropout_words(uint64_t key, uint64_t row, uint32_t chunk, uint32_t* words);

// y = round(x + round(update * scale)) where `update` is kept, x elsewhere. Rows are contiguous, and numbered from 0 in the matrix
// that the pointers begin.
struct DropoutAdd {
  Element type;
  int64_t cols;
  Dropout dropout;
  const void* x;  // null: zeros
  const void* update;
  void* y;  // may be x or update
};
void dropout_add(const DropoutAdd& op, int64_t begin_row, int64_t end_row);

// On the visible part of an attention tile, in place. Row r is row `first_row` + r of the mask, and the first key its column `first_key`.
void attention_dropout(const AttentionTile& tile, const Dropout& dropout, uint64_t first_row, int64_t first_key);

// Cross entropy of one row of logits: returns log(sum(exp)) - logits[target]. With `gradient` the row becomes
// (softmax - onehot(target)) * scale.
double cross_entropy_row(Element type, void* logits, int64_t cols, int64_t target, bool gradient,
                         float scale);

}  // namespace sluice::gpu::cpu
