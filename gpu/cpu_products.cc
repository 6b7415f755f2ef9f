#include "gpu/cpu_products.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>

// Not Highway: its version in Debian 12 has no such target.
#define SLUICE_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace sluice::gpu::cpu {
namespace {

constexpr int kMaxRows = 6, kMaxVectors = 4;  // 24 sums, 4 columns and a row: 29 of 32 registers
constexpr int64_t kLanes = kPairColumns;

SLUICE_BF16 inline __mmask16 first_lanes(int64_t n) {
  return static_cast<__mmask16>(n >= kLanes ? 0xffffu : (1u << n) - 1);
}

struct Block {
  const std::byte* a;
  int64_t row_step, pair_step;
  const uint32_t* b;
  int64_t b_stride;
  float* c;
  int64_t stride, last;  // last: columns of the last vector
  int64_t pairs;
  float scale;
  bool add;
};

template <int kRows, int kVectors>
SLUICE_BF16 void multiply_block(const Block& o) {
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_setzero_ps();
  const std::byte* a = o.a;
  const uint32_t* b = o.b;
  for (int64_t i = 0; i < o.pairs; ++i, a += o.pair_step, b += o.b_stride) {
    __m512i right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = _mm512_loadu_si512(b + kLanes * v);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      int pair;
      std::memcpy(&pair, a + r * o.row_step, sizeof(pair));
      const auto left = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], left, reinterpret_cast<__m512bh>(right[v]));
    }
  }
  const __m512 scale = _mm512_set1_ps(o.scale);
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* c = o.c + r * o.stride + kLanes * v;
      const __mmask16 mask = first_lanes(v + 1 == kVectors ? o.last : kLanes);
      const __m512 before = o.add ? _mm512_maskz_loadu_ps(mask, c) : _mm512_setzero_ps();
      _mm512_mask_storeu_ps(c, mask, _mm512_fmadd_ps(sum[r][v], scale, before));
    }
}

using Kernel = void (*)(const Block&);
template <int kRows>
constexpr Kernel kOfRows[kMaxVectors] = {multiply_block<kRows, 1>, multiply_block<kRows, 2>, multiply_block<kRows, 3>, multiply_block<kRows, 4>};
constexpr const Kernel* kKernels[kMaxRows] = {kOfRows<1>, kOfRows<2>, kOfRows<3>, kOfRows<4>, kOfRows<5>, kOfRows<6>};

SLUICE_BF16 inline __m512i widened(const uint16_t* from, int64_t n) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), from));
}

SLUICE_BF16 inline __m512i widened(const float* from, int64_t n) {
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(first_lanes(n), from))));
}

template <class T>
SLUICE_BF16 void pair_rows_of(const T* from, int64_t from_stride, int64_t k, int64_t n, uint32_t* pairs, int64_t stride) {
  for (int64_t row = 0; row < k; row += 2, pairs += stride) {
    const T* even = from + row * from_stride;
    for (int64_t j = 0; j < n; j += kLanes) {
      const __m512i low = widened(even + j, n - j);
      const __m512i high = row + 1 < k ? widened(even + from_stride + j, n - j) : _mm512_setzero_si512();
      _mm512_storeu_si512(pairs + j, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
  }
}

// 16 rows of 16 words each, in place: by pairs of words, of double words, and of quarters twice.
SLUICE_BF16 void transpose(__m512i (&rows)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  // rows[4 g + c]: in each quarter q of the vector, column 4 q + c of the rows 4 g .. 4 g + 3
  for (int i = 0; i < 16; i += 4)
    for (int half = 0; half < 2; ++half) {
      rows[i + 2 * half] = _mm512_unpacklo_epi64(t[i + half], t[i + 2 + half]);
      rows[i + 2 * half + 1] = _mm512_unpackhi_epi64(t[i + half], t[i + 2 + half]);
    }
  for (int c = 0; c < 4; ++c) {  // gather the four groups of rows of each quarter
    const __m512i even_low = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0x88), odd_low = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0x88), odd_high = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0xdd);
    t[c] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    t[4 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    t[8 + c] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    t[12 + c] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
  for (int i = 0; i < 16; ++i) rows[i] = t[i];
}

}  // namespace

bool has_bf16_products() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bf16");
}

void pair_rows(const uint16_t* from, int64_t from_stride, int64_t k, int64_t n, uint32_t* pairs, int64_t stride) {
  pair_rows_of(from, from_stride, k, n, pairs, stride);
}

void pair_rows(const float* from, int64_t from_stride, int64_t k, int64_t n, uint32_t* pairs, int64_t stride) {
  pair_rows_of(from, from_stride, k, n, pairs, stride);
}

SLUICE_BF16 void pair_columns(const uint16_t* from, int64_t from_stride, int64_t n, int64_t k, uint32_t* pairs, int64_t stride) {
  for (int64_t j = 0; j < n; j += kLanes)
    for (int64_t i = 0; i < k / 2; i += kLanes) {
      __m512i words[16];
      for (int64_t r = 0; r < kLanes; ++r)
        words[r] = j + r < n ? _mm512_maskz_loadu_epi32(first_lanes(k / 2 - i), from + (j + r) * from_stride + 2 * i) : _mm512_setzero_si512();
      transpose(words);
      for (int64_t r = 0; r < std::min(kLanes, k / 2 - i); ++r) _mm512_storeu_si512(pairs + (i + r) * stride + j, words[r]);
    }
}

void multiply(const LeftPairs& a, const RightPairs& b, const Product& p, float* c, int64_t stride) {
  for (int64_t j = 0; j < p.n; j += kMaxVectors * kLanes) {
    const int64_t columns = std::min(p.n - j, kMaxVectors * kLanes), vectors = (columns + kLanes - 1) / kLanes;
    for (int64_t row = 0; row < p.m; row += kMaxRows) {
      const int64_t rows = std::min<int64_t>(p.m - row, kMaxRows);
      kKernels[rows - 1][vectors - 1]({.a = static_cast<const std::byte*>(a.data) + row * a.row_step,
                                       .row_step = a.row_step,
                                       .pair_step = a.pair_step,
                                       .b = b.data + j,
                                       .b_stride = b.stride,
                                       .c = c + row * stride + j,
                                       .stride = stride,
                                       .last = columns - (vectors - 1) * kLanes,
                                       .pairs = p.pairs,
                                       .scale = p.scale,
                                       .add = p.add});
    }
  }
}

}  // namespace sluice::gpu::cpu

#else

namespace sluice::gpu::cpu {

bool has_bf16_products() { return false; }
void pair_rows(const uint16_t*, int64_t, int64_t, int64_t, uint32_t*, int64_t) { base::fail(base::ErrorKind::bug, "no bf16 products"); }
void pair_rows(const float*, int64_t, int64_t, int64_t, uint32_t*, int64_t) { base::fail(base::ErrorKind::bug, "no bf16 products"); }
void pair_columns(const uint16_t*, int64_t, int64_t, int64_t, uint32_t*, int64_t) { base::fail(base::ErrorKind::bug, "no bf16 products"); }
void multiply(const LeftPairs&, const RightPairs&, const Product&, float*, int64_t) { base::fail(base::ErrorKind::bug, "no bf16 products"); }

}  // namespace sluice::gpu::cpu

#endif
