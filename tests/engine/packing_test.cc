#include "engine/packing.h"

#include <map>
#include <random>
#include <set>

#include "tests/engine/files_util.h"
#include "tests/engine/token_file_util.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;

// Documents of the given lengths; the ids count up over the whole file, so that an id tells where it is from.
class PackingTest : public testing::Test {
 protected:
  const TokenFile& make(const std::vector<uint64_t>& lengths, std::vector<uint8_t> mask = {}) {
    TokenBytes bytes{.vocab = 100'000, .ids = {}, .offsets = {0}, .mask = std::move(mask)};
    for (const uint64_t length : lengths) bytes.offsets.push_back(bytes.offsets.back() + length);
    for (uint32_t i = 0; i < bytes.offsets.back(); ++i) bytes.ids.push_back(i);
    write_file(dir_ / "t", bytes.build());
    file_.emplace(TokenFile::open(dir_ / "t"));
    return *file_;
  }
  std::vector<uint64_t> many_lengths() {
    std::mt19937 random(3);
    std::vector<uint64_t> lengths;
    for (int i = 0; i < 200; ++i) lengths.push_back(1 + random() % 40);
    return lengths;
  }
  TempDir dir_;
  std::optional<TokenFile> file_;
};

TEST_F(PackingTest, CutsDocumentsIntoRows) {
  const Packing packing(make({3, 4, 2}), {.seed = 0, .sequence = 4, .shuffle = false});
  ASSERT_EQ(packing.samples_per_epoch(), 3u);
  const Sample first = packing.sample(0), second = packing.sample(1), last = packing.sample(2);
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(first.targets, (std::vector<int32_t>{1, 2, -100, -100}));
  EXPECT_EQ(first.positions, (std::vector<int32_t>{0, 1, 2, 0}));
  EXPECT_EQ(first.starts, (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(first.trained, 2u);
  EXPECT_EQ(second.tokens, (std::vector<int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(second.targets, (std::vector<int32_t>{5, 6, -100, -100}));
  EXPECT_EQ(second.positions, (std::vector<int32_t>{0, 1, 2, 0}));
  EXPECT_EQ(last.tokens, (std::vector<int32_t>{8, 0, 0, 0}));  // the last row is filled up
  EXPECT_EQ(last.targets, (std::vector<int32_t>{-100, -100, -100, -100}));
  EXPECT_EQ(last.starts, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(last.positions, (std::vector<int32_t>{0, 0, 1, 2}));
  EXPECT_EQ(last.trained, 0u);
}

TEST_F(PackingTest, AWholeRowTrainsOneTokenLess) {
  const Packing packing(make({20}), {.seed = 0, .sequence = 8, .shuffle = true});
  EXPECT_EQ(packing.samples_per_epoch(), 2u);
  EXPECT_EQ(packing.sample(1).trained, 7u);
  EXPECT_EQ(packing.sample(1).tokens[0], 8);
}

TEST_F(PackingTest, MaskedTokensAreReadButNotPredicted) {
  const Packing packing(make({3, 3}, {0, 0, 1, 1, 1, 0}), {.seed = 0, .sequence = 6, .shuffle = false});
  const Sample s = packing.sample(0);
  EXPECT_EQ(s.tokens, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(s.targets, (std::vector<int32_t>{-100, 2, -100, 4, -100, -100}));
  EXPECT_EQ(s.trained, 2u);
  EXPECT_EQ(packing.trained(0), 2u);
}

// Over an epoch, each token is seen at most once, whole documents stay in order, and only the tail is left
// out.
TEST_F(PackingTest, AnEpochSeesEveryTokenButTheTail) {
  const TokenFile& file = make(many_lengths());
  const Packing packing(file, {.seed = 5, .sequence = 64, .shuffle = true});
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int32_t> seen;
    for (uint64_t i = 0; i < packing.samples_per_epoch(); ++i) {
      const Sample s = packing.sample(epoch * packing.samples_per_epoch() + i);
      for (size_t t = 0; t < s.tokens.size(); ++t) {
        EXPECT_TRUE(seen.insert(s.tokens[t]).second);
        if (s.targets[t] != -100) {
          EXPECT_EQ(s.targets[t], s.tokens[t] + 1);
        }
        if (s.positions[t] > 0) {
          EXPECT_EQ(s.tokens[t], s.tokens[t - 1] + 1);
        }
      }
    }
    EXPECT_EQ(seen.size(), file.tokens() / 64 * 64);
  }
}

TEST_F(PackingTest, EvaluationPredictsEveryTokenButThoseThatBeginAPiece) {
  const TokenFile& file = make(many_lengths());
  const Packing packing(file, {.seed = 0, .sequence = 64, .shuffle = false});
  uint64_t trained = 0, pieces = 0, fillings = 0;
  for (uint64_t i = 0; i < packing.samples_per_epoch(); ++i) {
    const Sample s = packing.sample(i);
    trained += s.trained;
    pieces += s.starts.size();
    if (i + 1 == packing.samples_per_epoch()) fillings = file.tokens() % 64 != 0 ? 1 : 0;
    EXPECT_EQ(s.trained, packing.trained(i));
  }
  EXPECT_EQ(trained, file.tokens() - (pieces - fillings));
}

TEST_F(PackingTest, ARowDependsOnItsNumberAlone) {
  const TokenFile& file = make(many_lengths());
  const PackingOptions options{.seed = 9, .sequence = 32, .shuffle = true};
  const Packing forward(file, options);
  std::map<uint64_t, Sample> rows;
  const uint64_t all = 4 * forward.samples_per_epoch();
  for (uint64_t i = 0; i < all; ++i) rows[i] = forward.sample(i);
  const Packing backward(file, options);
  for (uint64_t i = all; i-- > 0;) {
    EXPECT_EQ(backward.trained(i), rows[i].trained);
    EXPECT_EQ(backward.sample(i).tokens, rows[i].tokens);
    EXPECT_EQ(backward.sample(i).starts, rows[i].starts);
  }
}

TEST_F(PackingTest, SeedsAndEpochsShuffleDifferently) {
  const TokenFile& file = make(many_lengths());
  const Packing a(file, {.seed = 1, .sequence = 32, .shuffle = true}),
      b(file, {.seed = 2, .sequence = 32, .shuffle = true});
  EXPECT_NE(a.sample(0).tokens, b.sample(0).tokens);
  EXPECT_NE(a.sample(0).tokens, a.sample(a.samples_per_epoch()).tokens);
}

// The order is part of a run's bits: it must not change with the compiler or the standard library. (Computed
// apart, in Python.)
TEST_F(PackingTest, TheOrderIsFixedForEver) {
  const Packing packing(make({1, 1, 1, 1, 1, 1, 1, 1}), {.seed = 42, .sequence = 8, .shuffle = true});
  EXPECT_EQ(packing.sample(0).tokens, (std::vector<int32_t>{7, 6, 5, 1, 2, 0, 3, 4}));
  EXPECT_EQ(packing.sample(1).tokens, (std::vector<int32_t>{0, 5, 6, 7, 2, 1, 4, 3}));
}

TEST_F(PackingTest, RefusesRowsThatCannotBe) {
  const TokenFile& file = make({5, 5});
  expect_error(ErrorKind::data, "fewer than one row",
               [&] { Packing(file, {.seed = 0, .sequence = 11, .shuffle = true}); });
  expect_error(ErrorKind::config, "at least 2",
               [&] { Packing(file, {.seed = 0, .sequence = 1, .shuffle = true}); });
  EXPECT_EQ(Packing(file, {.seed = 0, .sequence = 11, .shuffle = false}).samples_per_epoch(), 1u);
}

}  // namespace
}  // namespace sluice::engine
