#include "engine/attention.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <ATen/ops/stack.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "base/error.h"
#include "engine/attention_tiles.h"
#include "tests/engine/math_fixture.h"

namespace sluice::engine {
namespace {

using Pieces = std::vector<std::vector<int32_t>>;

struct Case {
  AttentionShape shape;
  int64_t batch, tokens;
  Pieces pieces;
  gpu::cpu::Dropout dropout = {};
  bool packed = false;  // q, k and v in one tensor
};

at::Tensor random_tensor(int64_t batch, int64_t tokens, int64_t width, at::ScalarType type, uint64_t seed) {
  at::Tensor t = at::empty({batch, tokens, width}, at::TensorOptions().dtype(at::kFloat));
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (float *p = t.data_ptr<float>(), *end = p + t.numel(); p < end; ++p) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    *p = static_cast<float>(static_cast<double>(state >> 40) / (1 << 23) - 1);
  }
  return t.to(type);
}

// 0 for what is dropped, the scale for what is kept: [length, length] of the queries and keys of one piece.
at::Tensor mask_of(const Case& c, int64_t pair, int64_t begin, int64_t length) {
  at::Tensor mask = at::empty({length, length}, at::TensorOptions().dtype(at::kDouble)).fill_(1);
  if (!c.dropout.active()) return mask;
  uint32_t words[64];
  for (int64_t q = 0; q < length; ++q)
    for (int64_t k = 0; k <= q; ++k) {
      const auto key = static_cast<uint32_t>(begin + k);
      gpu::cpu::dropout_words(c.dropout.key, static_cast<uint64_t>(pair * c.tokens + begin + q), key / 64, words);
      mask.data_ptr<double>()[q * length + k] = words[key % 64] < c.dropout.threshold ? 0 : static_cast<double>(c.dropout.scale);
    }
  return mask;
}

// The textbook formula in float64 through autograd, a head and a piece at a time.
at::Tensor exact_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Case& c) {
  const auto [heads, kv_heads, dim] = c.shape;
  std::vector<at::Tensor> rows;
  for (int64_t b = 0; b < c.batch; ++b) {
    const auto& starts = c.pieces[static_cast<size_t>(b)];
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < starts.size(); ++i) {
      const int64_t begin = starts[i], length = (i + 1 < starts.size() ? starts[i + 1] : c.tokens) - begin;
      const auto head = [&](const at::Tensor& t, int64_t h) {
        return t[b].narrow(0, begin, length).narrow(1, h * dim, dim);
      };
      const at::Tensor visible = at::empty({length, length}, q.options()).fill_(1).tril();
      std::vector<at::Tensor> outs;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t kv = h / (heads / kv_heads);
        const at::Tensor scores = head(q, h).mm(head(k, kv).t()) / std::sqrt(static_cast<double>(dim));
        outs.push_back(scores.masked_fill(visible.eq(0), -INFINITY).softmax(-1).mul(mask_of(c, b * heads + h, begin, length)).mm(head(v, kv)));
      }
      parts.push_back(at::cat(outs, 1));
    }
    rows.push_back(at::cat(parts, 0));
  }
  return at::stack(rows);
}

struct Outcome {
  at::Tensor out, dq, dk, dv;
};

Outcome run(const Case& c, at::ScalarType type, bool exact) {
  const at::AutoGradMode with_grad(true);
  const int64_t q_width = c.shape.heads * c.shape.head_dim, kv_width = c.shape.kv_heads * c.shape.head_dim;
  const auto leaf = [&](int64_t width, uint64_t seed) {
    at::Tensor t = random_tensor(c.batch, c.tokens, width, type, seed);
    if (exact) t = t.to(at::kDouble);
    return t.set_requires_grad(true);
  };
  const at::Tensor q = leaf(q_width, 1), k = leaf(kv_width, 2), v = leaf(kv_width, 3);
  const at::Tensor out = exact      ? exact_attention(q, k, v, c)
                         : c.packed ? packed_attention(at::cat({q, k, v}, 2), c.shape, c.pieces, c.dropout)
                                    : attention(q, k, v, c.shape, c.pieces, c.dropout);
  torch::autograd::backward({out},
                            {random_tensor(c.batch, c.tokens, q_width, type, 4).to(out.scalar_type())});
  return {out.detach(), q.grad(), k.grad(), v.grad()};
}

void expect_near(const Case& c, at::ScalarType type, double tolerance) {
  const Outcome ours = run(c, type, false), exact = run(c, type, true);
  EXPECT_LT(relative_error(ours.out, exact.out), tolerance);
  EXPECT_LT(relative_error(ours.dq, exact.dq), tolerance);
  EXPECT_LT(relative_error(ours.dk, exact.dk), tolerance);
  EXPECT_LT(relative_error(ours.dv, exact.dv), tolerance);
}

const Case kWhole{{6, 2, 16}, 2, 300, {{0}, {0}}};
const Case kPacked{{4, 2, 32}, 3, 290, {{0, 1, 2, 130, 289}, {0, 257}, {0}}};
const Case kManyHeads{{36, 4, 8}, 1, 140, {{0, 77}}};

TEST(Attention, Fp32EqualsTheFormula) {
  for (const Case& c : {kWhole, kPacked, kManyHeads}) expect_near(c, at::kFloat, 3e-6);
}

// Where the processor multiplies bf16 itself, probabilities and the gradients of scores are rounded too.
TEST(Attention, Bf16RoundsFactorsAndResults) {
  for (const Case& c : {kWhole, kPacked, kManyHeads}) expect_near(c, at::kBFloat16, 3e-3);
}

TEST(Attention, Fp16RoundsOnlyItsResults) {
  for (const Case& c : {kWhole, kPacked, kManyHeads}) expect_near(c, at::kHalf, 3.5e-4);
}

TEST(Attention, PackedInputsGiveTheBitsOfSeparateOnes) {
  for (Case c : {kWhole, kPacked, kManyHeads}) {
    const Outcome separate = run(c, at::kBFloat16, false);
    c.packed = true;
    const Outcome packed = run(c, at::kBFloat16, false);
    EXPECT_TRUE(packed.out.equal(separate.out));
    EXPECT_TRUE(packed.dq.equal(separate.dq));
    EXPECT_TRUE(packed.dk.equal(separate.dk));
    EXPECT_TRUE(packed.dv.equal(separate.dv));
  }
}

TEST(Attention, DropoutEqualsTheFormulaUnderTheSameMask) {
  for (Case c : {kWhole, kPacked, kManyHeads}) {
    c.dropout = {42, static_cast<uint32_t>(0.25 * 0x1p32), 1 / 0.75f};
    expect_near(c, at::kFloat, 3e-6);
    expect_near(c, at::kBFloat16, 3e-3);
    Case none = c;
    none.dropout = {};
    EXPECT_GT(relative_error(run(c, at::kFloat, false).out, run(none, at::kFloat, false).out), 0.1);
  }
}

TEST(Attention, OneTokenIsItsValue) {
  const Case one{{2, 1, 16}, 1, 1, {{0}}};
  const Outcome ours = run(one, at::kBFloat16, false), exact = run(one, at::kBFloat16, true);
  EXPECT_EQ(relative_error(ours.out, exact.out), 0);
  EXPECT_EQ(ours.dq.abs().sum().item<float>(), 0);  // nothing to choose from
  EXPECT_LT(relative_error(ours.dv, exact.dv), 2.5e-3);
}

TEST(Attention, BitsDoNotDependOnThreads) {
  const int threads = at::get_num_threads();
  Case dropping = kPacked;
  dropping.dropout = {42, 1u << 30, 4 / 3.0f};
  for (const Case& c : {kWhole, kPacked, dropping}) {
    at::set_num_threads(1);
    const Outcome one = run(c, at::kBFloat16, false);
    at::set_num_threads(3);
    const Outcome three = run(c, at::kBFloat16, false);
    at::set_num_threads(threads);
    EXPECT_TRUE(one.out.equal(three.out));
    EXPECT_TRUE(one.dq.equal(three.dq));
    EXPECT_TRUE(one.dk.equal(three.dk));
    EXPECT_TRUE(one.dv.equal(three.dv));
  }
}

TEST(Attention, PiecesMustAscend) {
  EXPECT_THROW(attention_parts({{0, 5, 5}}, 10, 128, 2), base::Error);
}

// Every query is in exactly one tile, whatever the cut.
TEST(AttentionParts, CoverEveryQueryOnce) {
  for (const int64_t parts : {1, 2, 3}) {
    for (const auto& row : attention_parts({{0}, {0, 3, 200}, {0, 1, 2, 3, 4, 5}}, 301, 64, parts)) {
      int64_t next = 0;
      for (const WorkPart& part : row) {
        for (const QueryTile& t : part.tiles) {
          EXPECT_EQ(t.first_query, next);
          EXPECT_GE(t.first_key, part.first_key);
          EXPECT_LE(t.rows(), 64);
          next = t.end;
          EXPECT_LE(next, part.end);
        }
      }
      EXPECT_EQ(next, 301);
    }
  }
}

}  // namespace
}  // namespace sluice::engine
