#include "gpu/cpu_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/bf16.h"

namespace sluice::gpu::cpu {
namespace {

constexpr float kUntouched = -77;

struct Matrix {
  int64_t rows, cols, stride;
  std::vector<uint16_t> bits;
  float at(int64_t r, int64_t c) const { return base::bf16_to_float(bits[static_cast<size_t>(r * stride + c)]); }
};

Matrix random_matrix(int64_t rows, int64_t cols, int64_t stride, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Matrix m{rows, cols, stride, std::vector<uint16_t>(static_cast<size_t>(rows * stride))};
  for (auto& b : m.bits) b = base::float_to_bf16(normal(random));
  return m;
}

struct Case {
  int64_t m, n, k;
};
// Rests of every kind: of rows (6), of vectors and columns (4 x 16), of pairs.
const Case kCases[] = {{1, 1, 2}, {6, 64, 64}, {64, 512, 64}, {7, 17, 33}, {13, 100, 5}, {64, 130, 128}, {5, 16, 1}, {12, 48, 96}, {3, 81, 31}};

// A row-major left factor needs an even number of columns: an odd k has one more, of zeros.
std::vector<uint16_t> even_rows(const Matrix& a, int64_t pairs) {
  std::vector<uint16_t> rows(static_cast<size_t>(a.rows * 2 * pairs), 0);
  for (int64_t r = 0; r < a.rows; ++r)
    for (int64_t c = 0; c < a.cols; ++c) rows[static_cast<size_t>(r * 2 * pairs + c)] = a.bits[static_cast<size_t>(r * a.stride + c)];
  return rows;
}

void expect_product(const Matrix& a, const Matrix& b, const Product& p, const std::vector<float>& c, int64_t stride, float before) {
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < stride; ++j) {
      const float got = c[static_cast<size_t>(i * stride + j)];
      if (j >= p.n) {
        ASSERT_EQ(got, kUntouched) << "beyond the row's end";
        continue;
      }
      double sum = 0, size = 0;
      for (int64_t x = 0; x < a.cols; ++x) {
        const double term = static_cast<double>(a.at(i, x)) * b.at(x, j);
        sum += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(got, before + p.scale * sum, 1e-6 * (size + 1)) << i << ", " << j;
    }
}

class CpuProducts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16_products()) GTEST_SKIP() << "this processor has no bf16 products";
  }
};

TEST_F(CpuProducts, EqualTheSums) {
  std::mt19937 random(1);
  for (const auto& [m, n, k] : kCases) {
    const Matrix a = random_matrix(m, k, k + 3, random), b = random_matrix(k, n, n + 5, random);
    const int64_t pairs = (k + 1) / 2, right_stride = padded_columns(n) + kPairColumns, stride = n + 2;
    std::vector<uint32_t> right(static_cast<size_t>(pairs * right_stride), 0x7fc07fc0u);
    pair_rows(b.bits.data(), b.stride, k, n, right.data(), right_stride);
    const std::vector<uint16_t> left = even_rows(a, pairs);
    std::vector<float> c(static_cast<size_t>(m * stride), kUntouched);
    for (const bool add : {false, true}) {
      if (add)
        for (int64_t i = 0; i < m; ++i) std::fill_n(c.begin() + i * stride, n, 5.0f);
      const Product p{.m = m, .n = n, .pairs = pairs, .scale = 0.5f, .add = add};
      multiply({left.data(), 4 * pairs, 4}, {right.data(), right_stride}, p, c.data(), stride);
      expect_product(a, b, p, c, stride, add ? 5 : 0);
    }
  }
}

// The left factor as the transpose of rows that were paired: of bf16, and of fp32, which is rounded.
TEST_F(CpuProducts, TakeATransposedLeftFactor) {
  std::mt19937 random(2);
  for (const auto& [m, n, k] : kCases) {
    const Matrix a = random_matrix(k, m, m + 1, random), b = random_matrix(k, n, n, random);
    Matrix transposed{m, k, k, std::vector<uint16_t>(static_cast<size_t>(m * k))};
    std::vector<float> wide(a.bits.size());
    for (int64_t r = 0; r < k; ++r)
      for (int64_t c = 0; c < m; ++c) {
        transposed.bits[static_cast<size_t>(c * k + r)] = a.bits[static_cast<size_t>(r * a.stride + c)];
        wide[static_cast<size_t>(r * a.stride + c)] = a.at(r, c) * (1 + 0x1p-10f);  // rounds back
      }
    const int64_t pairs = (k + 1) / 2, left_stride = padded_columns(m), right_stride = padded_columns(n);
    std::vector<uint32_t> left(static_cast<size_t>(pairs * left_stride)), same(left.size()), right(static_cast<size_t>(pairs * right_stride));
    pair_rows(a.bits.data(), a.stride, k, m, left.data(), left_stride);
    pair_rows(wide.data(), a.stride, k, m, same.data(), left_stride);
    EXPECT_EQ(left, same);
    pair_rows(b.bits.data(), b.stride, k, n, right.data(), right_stride);
    std::vector<float> c(static_cast<size_t>(m * n));
    const Product p{.m = m, .n = n, .pairs = pairs};
    multiply({left.data(), 4, 4 * left_stride}, {right.data(), right_stride}, p, c.data(), n);
    expect_product(transposed, b, p, c, n, 0);
  }
}

TEST_F(CpuProducts, PairsOfColumnsAreThoseOfTheTransposesRows) {
  std::mt19937 random(3);
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1, 2}, {16, 32}, {17, 64}, {100, 30}, {64, 128}, {5, 96}}) {
    const Matrix b = random_matrix(n, k, k + 2, random);
    std::vector<uint16_t> transposed(static_cast<size_t>(n * k));
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c < k; ++c) transposed[static_cast<size_t>(c * n + r)] = b.bits[static_cast<size_t>(r * b.stride + c)];
    const int64_t stride = padded_columns(n);
    std::vector<uint32_t> columns(static_cast<size_t>(k / 2 * stride), 1), rows(columns.size(), 2);
    pair_columns(b.bits.data(), b.stride, n, k, columns.data(), stride);
    pair_rows(transposed.data(), n, k, n, rows.data(), stride);
    EXPECT_EQ(columns, rows) << n << " x " << k;
  }
}

}  // namespace
}  // namespace sluice::gpu::cpu
