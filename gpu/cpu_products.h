// Products of bf16 matrices with sums in fp32, single-threaded, for CPUs with AVX-512 BF16: LibTorch's round every result to bf16.
// The instruction multiplies pairs that are neighbours along k and adds both products, in order of k; so the bits of an element depend on its row and
// column alone. It takes subnormals as zero.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sluice::gpu::cpu {

bool has_bf16_products();  // this CPU, and this build; the functions below need it

// Columns of a right factor are padded to this many.
inline constexpr int64_t kPairColumns = 16;
constexpr int64_t padded_columns(int64_t n) { return (n + kPairColumns - 1) / kPairColumns * kPairColumns; }

// pairs[i][j] = from[2 i][j], from[2 i + 1][j]: of a matrix [k][n], strides in elements. Zero where there is none: beyond an odd k, and in
// columns up to padded_columns(n). stride: a multiple of kPairColumns.
void pair_rows(const uint16_t* from, int64_t from_stride, int64_t k, int64_t n, uint32_t* pairs, int64_t stride);
void pair_rows(const float* from, int64_t from_stride, int64_t k, int64_t n, uint32_t* pairs, int64_t stride);  // rounded to nearest even
// The same of the transpose of `from` [n][k], k even: pairs[i][j] = from[j][2 i], from[j][2 i + 1].
void pair_columns(const uint16_t* from, int64_t from_stride, int64_t n, int64_t k, uint32_t* pairs, int64_t stride);

// Left factor [m][k]: the pair (row, i) is at row * row_step + i * pair_step bytes. bf16 rows are pairs as they are: pair_step 4.
struct LeftPairs {
  const void* data;
  int64_t row_step, pair_step;
};
// Right factor [k][n], made by pair_rows or pair_columns.
struct RightPairs {
  const uint32_t* data;
  int64_t stride;
};
// c = scale * a b, or c += scale * a b; c [m][n] has rows `stride` apart.
struct Product {
  int64_t m, n, pairs;  // pairs: k / 2, rounded up
  float scale = 1;
  bool add = false;
};
void multiply(const LeftPairs& a, const RightPairs& b, const Product& product, float* c, int64_t stride);

}  // namespace sluice::gpu::cpu
