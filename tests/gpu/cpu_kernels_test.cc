#include "gpu/cpu_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/bf16.h"
#include "base/fp16.h"

namespace sluice::gpu::cpu {
namespace {

// Values of any type, kept as the bytes the kernels see.
struct Row {
  Row(Element t, size_t n) : type(t), narrow(n), fp32(n) {}
  Row(Element t, size_t n, uint64_t seed) : Row(t, n) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < n; ++i) set(i, normal(random));
  }
  void set(size_t i, float value) {
    narrow[i] = type == Element::bf16 ? base::float_to_bf16(value) : base::float_to_fp16(value);
    fp32[i] = value;
  }
  double at(size_t i) const {
    return type == Element::bf16 ? base::bf16_to_float(narrow[i]) : type == Element::fp16 ? base::fp16_to_float(narrow[i]) : fp32[i];
  }
  void* data() { return type == Element::fp32 ? static_cast<void*>(fp32.data()) : narrow.data(); }
  size_t size() const { return fp32.size(); }
  Element type;
  std::vector<uint16_t> narrow;  // of either 16-bit type
  std::vector<float> fp32;
};

double tolerance(Element type, double value) {
  return (type == Element::bf16 ? 5e-3 : type == Element::fp16 ? 6e-4 : 2e-6) * (std::abs(value) + 1e-2);
}

class CpuKernels : public testing::TestWithParam<Element> {};
INSTANTIATE_TEST_SUITE_P(Types, CpuKernels, testing::Values(Element::bf16, Element::fp16, Element::fp32), [](const auto& type) {
                           return type.param == Element::bf16 ? "bf16" : type.param == Element::fp16 ? "fp16" : "fp32";
                         });

TEST(CpuKernelsRounding, EveryHalfIsLoadedExactlyAndStoredAsBaseDoes) {
  std::vector<uint16_t> halves;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) halves.push_back(static_cast<uint16_t>(bits));
  std::vector<float> wide(halves.size());
  const auto n = static_cast<int64_t>(halves.size());
  load_rows(Element::fp16, halves.data(), n, wide.data(), 1, n, 1);
  for (size_t i = 0; i < wide.size(); ++i) {
    const float exact = base::fp16_to_float(halves[i]);
    ASSERT_TRUE(wide[i] == exact || (std::isnan(wide[i]) && std::isnan(exact))) << i;
  }
  std::vector<float> in;
  for (const float x : wide)
    for (const int32_t step : {-4097, -4096, -4095, -1, 0, 1, 4095, 4096, 4097})  // around ties
      in.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(x) + static_cast<uint32_t>(step)));
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 65521) in.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  std::vector<uint16_t> out(in.size());
  const auto count = static_cast<int64_t>(in.size());
  store_rows(Element::fp16, in.data(), nullptr, out.data(), count, 1, count);
  for (size_t i = 0; i < in.size(); ++i) {
    const bool nan = std::isnan(in[i]);
    ASSERT_TRUE(nan ? std::isnan(base::fp16_to_float(out[i])) : out[i] == base::float_to_fp16(in[i])) << std::bit_cast<uint32_t>(in[i]);
  }
}

TEST(CpuKernelsRounding, EqualsBaseForEveryUpperHalf) {
  std::vector<float> in;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      in.push_back(std::bit_cast<float>(high << 16 | low));
  }
  std::vector<uint16_t> out(in.size());
  const auto n = static_cast<int64_t>(in.size());
  store_rows(Element::bf16, in.data(), nullptr, out.data(), n, 1, n);
  for (size_t i = 0; i < in.size(); ++i) {
    if (std::isnan(in[i])) {
      ASSERT_TRUE(std::isnan(base::bf16_to_float(out[i])));
    } else {
      ASSERT_EQ(out[i], base::float_to_bf16(in[i])) << std::bit_cast<uint32_t>(in[i]);
    }
  }
}

TEST_P(CpuKernels, SwiGluAndItsGradient) {
  for (const size_t n : {1, 7, 16, 37, 64}) {
    Row gate(GetParam(), n, 1), up(GetParam(), n, 2), dy(GetParam(), n, 3), out(GetParam(), n),
        dgate(GetParam(), n), dup(GetParam(), n);
    if (n > 30) gate.set(2, -100), gate.set(3, -200), gate.set(4, -4000), gate.set(5, GetParam() == Element::fp16 ? -6e4f : -1e30f), gate.set(6, 4000);
    swiglu({GetParam(), gate.data(), up.data(), out.data()}, 0, static_cast<int64_t>(n));
    swiglu_grad({GetParam(), gate.data(), up.data(), dy.data(), dgate.data(), dup.data()}, 0,
                static_cast<int64_t>(n));
    for (size_t i = 0; i < n; ++i) {
      const double g = gate.at(i), s = 1 / (1 + std::exp(-g));
      EXPECT_NEAR(out.at(i), g * s * up.at(i), tolerance(GetParam(), g * s * up.at(i)));
      EXPECT_NEAR(dup.at(i), dy.at(i) * g * s, tolerance(GetParam(), dy.at(i) * g * s));
      const double exact = dy.at(i) * up.at(i) * s * (1 + g * (1 - s));
      EXPECT_NEAR(dgate.at(i), exact, tolerance(GetParam(), exact));
    }
  }
}

TEST_P(CpuKernels, RmsNormAndItsGradient) {
  for (const size_t cols : {5, 16, 51, 96}) {
    const size_t rows = 3;
    Row x(GetParam(), rows * cols, 1), w(GetParam(), cols, 2), dy(GetParam(), rows * cols, 3),
        y(GetParam(), rows * cols), dx(GetParam(), rows * cols);
    std::vector<float> rstd(rows), dw(cols);
    const auto width = static_cast<int64_t>(cols);
    rms_norm({GetParam(), width, 1e-5f, x.data(), w.data(), y.data(), rstd.data()}, 0, rows);
    rms_norm_grad({GetParam(), width, x.data(), w.data(), rstd.data(), dy.data(), dx.data(), dw.data()}, 0,
                  rows);
    std::vector<double> exact_dw(cols);
    for (size_t r = 0; r < rows; ++r) {
      double squares = 0, dot = 0;
      for (size_t i = 0; i < cols; ++i) squares += x.at(r * cols + i) * x.at(r * cols + i);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
      for (size_t i = 0; i < cols; ++i)
        dot += dy.at(r * cols + i) * w.at(i) * x.at(r * cols + i) * scale / static_cast<double>(cols);
      for (size_t i = 0; i < cols; ++i) {
        const double normal = x.at(r * cols + i) * scale,
                     exact = scale * (dy.at(r * cols + i) * w.at(i) - normal * dot);
        EXPECT_NEAR(y.at(r * cols + i), normal * w.at(i), 2 * tolerance(GetParam(), normal * w.at(i)));
        EXPECT_NEAR(dx.at(r * cols + i), exact, 2 * tolerance(GetParam(), exact));
        exact_dw[i] += dy.at(r * cols + i) * normal;
      }
    }
    for (size_t i = 0; i < cols; ++i) EXPECT_NEAR(dw[i], exact_dw[i], tolerance(GetParam(), 6));
  }
}

TEST_P(CpuKernels, LayerNormAndItsGradient) {
  for (const size_t cols : {5, 16, 51, 96}) {
    const size_t rows = 3;
    Row x(GetParam(), rows * cols, 1), w(GetParam(), cols, 2), b(GetParam(), cols, 4), dy(GetParam(), rows * cols, 3),
        y(GetParam(), rows * cols), dx(GetParam(), rows * cols);
    for (size_t i = 0; i < x.size(); ++i) x.set(i, static_cast<float>(3 + x.at(i)));  // a mean that matters
    std::vector<float> stats(2 * rows), dw(cols), db(cols);
    const auto width = static_cast<int64_t>(cols);
    layer_norm({GetParam(), width, 1e-5f, x.data(), w.data(), b.data(), y.data(), stats.data()}, 0, rows);
    layer_norm_grad({GetParam(), width, x.data(), w.data(), stats.data(), dy.data(), dx.data(), dw.data(), db.data()}, 0, rows);
    std::vector<double> exact_dw(cols), exact_db(cols);
    for (size_t r = 0; r < rows; ++r) {
      double mean = 0, squares = 0, sum = 0, dot = 0;
      const auto n = static_cast<double>(cols);
      const auto at = [&](size_t i) { return r * cols + i; };
      for (size_t i = 0; i < cols; ++i) mean += x.at(at(i)) / n;
      for (size_t i = 0; i < cols; ++i) squares += (x.at(at(i)) - mean) * (x.at(at(i)) - mean);
      const double scale = 1 / std::sqrt(squares / n + 1e-5);
      for (size_t i = 0; i < cols; ++i) {
        sum += dy.at(at(i)) * w.at(i) / n;
        dot += dy.at(at(i)) * w.at(i) * (x.at(at(i)) - mean) * scale / n;
      }
      for (size_t i = 0; i < cols; ++i) {
        const double normal = (x.at(at(i)) - mean) * scale, exact = scale * (dy.at(at(i)) * w.at(i) - sum - normal * dot);
        EXPECT_NEAR(y.at(at(i)), normal * w.at(i) + b.at(i), 2 * tolerance(GetParam(), 1 + std::abs(normal * w.at(i))));
        EXPECT_NEAR(dx.at(at(i)), exact, 2 * tolerance(GetParam(), 1 + std::abs(exact)));
        exact_dw[i] += dy.at(at(i)) * normal;
        exact_db[i] += dy.at(at(i));
      }
    }
    for (size_t i = 0; i < cols; ++i) {
      EXPECT_NEAR(dw[i], exact_dw[i], tolerance(GetParam(), 6));
      EXPECT_NEAR(db[i], exact_db[i], 1e-5);
    }
  }
}

TEST_P(CpuKernels, GeluAndItsGradient) {
  for (const size_t n : {1, 7, 16, 37, 64}) {
    Row x(GetParam(), n, 1), dy(GetParam(), n, 3), out(GetParam(), n), dx(GetParam(), n);
    if (n > 30) x.set(3, 40), x.set(4, -40), x.set(5, 0), x.set(6, -4000), x.set(7, 4000);
    gelu({GetParam(), x.data(), out.data()}, 0, static_cast<int64_t>(n));
    gelu_grad({GetParam(), x.data(), dy.data(), dx.data()}, 0, static_cast<int64_t>(n));
    for (size_t i = 0; i < n; ++i) {
      const double v = x.at(i), c = std::sqrt(2 / M_PI), t = std::tanh(c * (v + 0.044715 * v * v * v));
      const double exact = v / 2 * (1 + t);
      const double slope = (1 + t) / 2 + v / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * v * v);
      EXPECT_NEAR(out.at(i), exact, tolerance(GetParam(), exact)) << v;
      EXPECT_NEAR(dx.at(i), dy.at(i) * slope, tolerance(GetParam(), dy.at(i) * slope)) << v;
    }
  }
}

TEST_P(CpuKernels, RotaryTurnsAndTurnsBack) {
  const int64_t heads = 3, dim = 22, rows = 4, half = dim / 2;
  Row x(GetParam(), static_cast<size_t>(rows * heads * dim), 1), y(GetParam(), x.size()),
      back(GetParam(), x.size());
  std::vector<float> cos, sin;
  for (int64_t i = 0; i < 8 * half; ++i) {
    cos.push_back(std::cos(0.3f * static_cast<float>(i)));
    sin.push_back(std::sin(0.3f * static_cast<float>(i)));
  }
  const std::vector<int64_t> positions{7, 0, 3, 1};
  rotary({GetParam(), heads, dim, x.data(), y.data(), positions.data(), cos.data(), sin.data(), false}, 0,
         rows);
  rotary({GetParam(), heads, dim, y.data(), back.data(), positions.data(), cos.data(), sin.data(), true}, 0,
         rows);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < heads * dim; ++i) {
      const int64_t j = i % dim, k = positions[static_cast<size_t>(r)] * half + j % half,
                    partner = j < half ? i + half : i - half;
      const double c = cos[static_cast<size_t>(k)], s = sin[static_cast<size_t>(k)],
                   other = x.at(static_cast<size_t>(r * heads * dim + partner));
      const double exact =
          x.at(static_cast<size_t>(r * heads * dim + i)) * c + (j < half ? -other : other) * s;
      EXPECT_NEAR(y.at(static_cast<size_t>(r * heads * dim + i)), exact,
                  tolerance(GetParam(), 1 + std::abs(exact)));
    }
  }
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(back.at(i), x.at(i), 2 * tolerance(GetParam(), 2));
}

TEST(CpuKernelsSoftmax, MasksSumsAndGradient) {
  const int64_t rows = 5, keys = 23, stride = 29, visible = keys - rows + 1;
  Row scores(Element::fp32, static_cast<size_t>(rows * stride), 1),
      grad(Element::fp32, static_cast<size_t>(rows * stride), 2);
  Row p = scores, dp = grad;
  std::vector<float> inverse(rows), lse(rows);
  attention_softmax({rows, keys, stride, visible, p.fp32.data()}, inverse.data(), lse.data());
  Row p2 = scores;
  attention_softmax_grad({rows, keys, stride, visible, p2.fp32.data()}, lse.data(), dp.fp32.data());
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0, dot = 0;
    const auto at = [&](int64_t i) { return static_cast<size_t>(r * stride + i); };
    for (int64_t i = 0; i < visible + r; ++i) sum += std::exp(scores.at(at(i)));
    for (int64_t i = 0; i < visible + r; ++i) dot += std::exp(scores.at(at(i))) / sum * grad.at(at(i));
    EXPECT_NEAR(lse[static_cast<size_t>(r)], std::log(sum), 1e-5);
    for (int64_t i = 0; i < keys; ++i) {
      const double exact = i < visible + r ? std::exp(scores.at(at(i))) / sum : 0;
      EXPECT_NEAR(p.fp32[at(i)] * inverse[static_cast<size_t>(r)], exact, 1e-6);
      EXPECT_NEAR(p2.fp32[at(i)], exact, 1e-6);
      EXPECT_NEAR(dp.fp32[at(i)], exact * (grad.at(at(i)) - dot), 1e-6);
    }
  }
}

// The published answer for counter and key 0, and a plain implementation for others.
TEST(CpuKernelsDropout, WordsArePhilox) {
  uint32_t words[64];
  dropout_words(0, 0, 0, words);
  EXPECT_EQ(words[0], 0x6627e8d5u);
  EXPECT_EQ(words[16], 0xe169c58du);
  EXPECT_EQ(words[32], 0xbc57ac4cu);
  EXPECT_EQ(words[48], 0x9b00dbd8u);
  const uint64_t key = 0x0123456789abcdef, row = 0xfedcba9876543210;
  dropout_words(key, row, 77, words);
  for (uint32_t i = 0; i < 16; ++i) {
    uint32_t c[4] = {16 * 77 + i, 0, static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32)};
    auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
      const uint32_t next[4] = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
                                static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
      std::copy_n(next, 4, c);
    }
    for (uint32_t w = 0; w < 4; ++w) EXPECT_EQ(words[16 * w + i], c[w]) << w << " " << i;
  }
}

TEST_P(CpuKernels, DropoutKeepsTheStatedShareAndAddsIt) {
  const int64_t rows = 50, cols = 203;
  const auto n = static_cast<size_t>(rows * cols);
  const Dropout dropout{99, static_cast<uint32_t>(0.25 * 0x1p32), 4 / 3.0f};
  Row x(GetParam(), n, 1), update(GetParam(), n, 2), y(GetParam(), n), alone(GetParam(), n);
  dropout_add({GetParam(), cols, dropout, x.data(), update.data(), y.data()}, 0, 20);
  dropout_add({GetParam(), cols, dropout, x.data(), update.data(), y.data()}, 20, rows);
  dropout_add({GetParam(), cols, dropout, nullptr, update.data(), alone.data()}, 0, rows);
  size_t dropped = 0, neighbours = 0;
  bool before = false;
  for (size_t i = 0; i < n; ++i) {
    uint32_t words[64];
    const auto col = static_cast<uint32_t>(i % static_cast<size_t>(cols));
    dropout_words(dropout.key, i / static_cast<size_t>(cols), col / 64, words);
    const bool drop = words[col % 64] < dropout.threshold;
    dropped += drop;
    neighbours += drop && before;
    before = drop;
    EXPECT_NEAR(alone.at(i), drop ? 0 : update.at(i) * 4 / 3, tolerance(GetParam(), update.at(i) * 4 / 3));
    EXPECT_NEAR(y.at(i), x.at(i) + alone.at(i), tolerance(GetParam(), x.at(i) + alone.at(i)));
  }
  const auto count = static_cast<double>(n);
  EXPECT_NEAR(static_cast<double>(dropped) / count, 0.25, 5 * std::sqrt(0.25 * 0.75 / count));
  EXPECT_NEAR(static_cast<double>(neighbours) / count, 0.0625, 5 * std::sqrt(0.0625 / count));
}

TEST(CpuKernelsDropout, AnAttentionTileGetsTheSameMaskHoweverItIsCut) {
  const int64_t rows = 6, keys = 150, first_key = 70;  // keys 70 .. 219 of the row
  const Dropout dropout{5, static_cast<uint32_t>(0.5 * 0x1p32), 2};
  std::vector<float> whole(rows * keys, 1.0f), parts(rows * keys, 1.0f);
  attention_dropout({rows, keys, keys, keys - rows + 1, whole.data()}, dropout, 1000, first_key);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = parts.data() + r * keys;
    attention_dropout({1, 33, 33, 33, row}, dropout, 1000 + static_cast<uint64_t>(r), first_key);
    const int64_t rest = keys - rows + 1 + r - 33;
    attention_dropout({1, rest, rest, rest, row + 33}, dropout, 1000 + static_cast<uint64_t>(r), first_key + 33);
  }
  EXPECT_EQ(whole, parts);
  for (int64_t r = 0; r < rows; ++r) {
    uint32_t words[64];
    dropout_words(5, 1000 + static_cast<uint64_t>(r), 1, words);
    EXPECT_EQ(whole[static_cast<size_t>(r * keys)], words[70 - 64] < dropout.threshold ? 0 : 2);
    for (int64_t k = keys - rows + 1 + r; k < keys; ++k) EXPECT_EQ(whole[static_cast<size_t>(r * keys + k)], 1.0f);  // not visible
  }
}

TEST_P(CpuKernels, CrossEntropyAndItsGradient) {
  for (const size_t cols : {3, 64, 1001}) {
    Row logits(GetParam(), cols, 1);
    Row grad = logits;
    const int64_t target = static_cast<int64_t>(cols) - 2;
    double sum = 0;
    for (size_t i = 0; i < cols; ++i) sum += std::exp(logits.at(i));
    const double exact = std::log(sum) - logits.at(static_cast<size_t>(target));
    EXPECT_NEAR(cross_entropy_row(GetParam(), logits.data(), static_cast<int64_t>(cols), target, false, 1),
                exact, 1e-5);
    EXPECT_NEAR(cross_entropy_row(GetParam(), grad.data(), static_cast<int64_t>(cols), target, true, 0.25f),
                exact, 1e-5);
    for (size_t i = 0; i < cols; ++i) {
      const double d = 0.25 * (std::exp(logits.at(i)) / sum - (static_cast<int64_t>(i) == target));
      EXPECT_NEAR(grad.at(i), d, tolerance(GetParam(), 0) + 5e-3 * std::abs(d));
    }
  }
}

TEST_P(CpuKernels, NanStaysNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Row logits(GetParam(), 40, 1), gate(GetParam(), 40, 2), up(GetParam(), 40, 3), out(GetParam(), 40);
  logits.set(17, nan);
  gate.set(5, nan);
  EXPECT_TRUE(std::isnan(cross_entropy_row(GetParam(), logits.data(), 40, 3, false, 1)));
  swiglu({GetParam(), gate.data(), up.data(), out.data()}, 0, 40);
  EXPECT_TRUE(std::isnan(out.at(5)));
  gelu({GetParam(), gate.data(), out.data()}, 0, 40);
  EXPECT_TRUE(std::isnan(out.at(5)));
  layer_norm({GetParam(), 40, 1e-5f, gate.data(), up.data(), up.data(), out.data(), std::vector<float>(2).data()}, 0, 1);
  EXPECT_TRUE(std::isnan(out.at(0)));
  std::vector<float> scores(40, 1.0f), inverse(1), lse(1);
  scores[33] = nan;
  attention_softmax({1, 40, 40, 40, scores.data()}, inverse.data(), lse.data());
  EXPECT_TRUE(std::isnan(lse[0]));
}

TEST_P(CpuKernels, AddToFp32AndRowsWithStrides) {
  Row values(GetParam(), 45, 1);
  std::vector<float> sum(45, 1.5f);
  add_to_fp32(GetParam(), values.data(), sum.data(), 3, 44);
  EXPECT_EQ(sum[2], 1.5f);
  EXPECT_EQ(sum[44], 1.5f);
  for (size_t i = 3; i < 44; ++i) EXPECT_EQ(sum[i], 1.5f + static_cast<float>(values.at(i)));
  std::vector<float> dense(2 * 19);
  load_rows(GetParam(), values.data(), 23, dense.data(), 2, 19, 0.5f);
  for (size_t i = 0; i < 19; ++i) EXPECT_EQ(dense[19 + i], 0.5f * static_cast<float>(values.at(23 + i)));
  Row back(GetParam(), 45);
  const std::vector<float> scale{2, 2};
  store_rows(GetParam(), dense.data(), scale.data(), back.data(), 23, 2, 19);
  for (size_t i = 0; i < 19; ++i) EXPECT_EQ(back.at(23 + i), values.at(23 + i));
}

}  // namespace
}  // namespace sluice::gpu::cpu
