#include "engine/token_file.h"

#include <random>

#include "base/hash.h"
#include "tests/engine/files_util.h"
#include "tests/engine/token_file_util.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;

class TokenFileTest : public testing::Test {
 protected:
  void refuses(const std::string& text, const TokenBytes& bytes, const TokenExpectation& expected = {}) {
    write_file(path_, bytes.build());
    expect_error(ErrorKind::data, text, [&] { TokenFile::open(path_, expected); });
  }
  TempDir dir_;
  const std::filesystem::path path_ = dir_ / "t.tokens";
};

TEST_F(TokenFileTest, ReadsBothWidthsAndTheMask) {
  for (const uint64_t vocab : {uint64_t{65536}, uint64_t{65537}}) {
    write_file(
        path_,
        TokenBytes{.vocab = vocab, .ids = {1, 65535, 3, 4, 5}, .offsets = {0, 2, 5}, .mask = {0, 1, 1, 0, 1}}
            .build());
    const TokenFile file = TokenFile::open(path_);
    EXPECT_EQ(file.documents(), 2u);
    EXPECT_EQ(file.tokens(), 5u);
    EXPECT_EQ(file.begin(1), 2u);
    EXPECT_EQ(file.length(1), 3u);
    EXPECT_TRUE(file.masked());
    std::vector<int32_t> ids(4);
    file.read(1, ids);
    EXPECT_EQ(ids, (std::vector<int32_t>{65535, 3, 4, 5}));
    std::vector<uint8_t> mask(3);
    file.read_mask(2, mask);
    EXPECT_EQ(mask, (std::vector<uint8_t>{1, 0, 1}));
    EXPECT_THROW(file.read(2, ids), base::Error);
  }
  write_file(path_, TokenBytes{}.build());
  std::vector<uint8_t> mask(2, 0);
  TokenFile::open(path_).read_mask(0, mask);
  EXPECT_EQ(mask, (std::vector<uint8_t>{1, 1}));
}

TEST_F(TokenFileTest, ReadsWhatPythonWrote) {
  const auto tokenizer = test_models() / "tokenizer";
  const TokenFile file = TokenFile::open(test_models() / "train.tokens", expect_tokens_of(tokenizer, 2048));
  EXPECT_EQ(file.vocab(), 2048u);
  EXPECT_EQ(file.documents(), 120u);
  std::vector<int32_t> last(1);  // every document ends with the end token
  for (uint64_t d = 0; d < file.documents(); ++d) {
    file.read(file.begin(d) + file.length(d) - 1, last);
    EXPECT_EQ(last[0], 0);
  }
}

TEST_F(TokenFileTest, RefusesAnotherTokenizerOrVocabulary) {
  const TokenBytes bytes{.vocab = 100, .tokenizer = 7, .ids = {1, 60}, .offsets = {0, 2}};
  refuses("another tokenizer", bytes, {.vocab = 100, .tokenizer = 8, .model = "m"});
  refuses("id 60, but the vocabulary of m has 60", bytes, {.vocab = 60, .tokenizer = 7, .model = "m"});
  TokenFile::open(path_, {.vocab = 61, .tokenizer = 7, .model = "m"});
  TokenFile::open(path_, {.vocab = 61, .tokenizer = {}, .model = "m"});
}

TEST_F(TokenFileTest, RefusesDamage) {
  refuses("its own vocabulary has 50", {.vocab = 50, .ids = {1, 50}, .offsets = {0, 2}});
  refuses("impossible", {.offsets = {1, 2}});
  refuses("impossible", {.ids = {1, 2, 3}, .offsets = {0, 2, 2, 3}});
  refuses("impossible", {.ids = {1, 2, 3}, .offsets = {0, 3, 2, 3}});
  refuses("impossible", {.ids = {1, 2, 3}, .offsets = {0, 2}, .tokens = 3});
  refuses("impossible", {.mask = {1, 2}});
  refuses("no text", {.ids = {}, .offsets = {0}});
  refuses("version 2", {.version = 2});
  refuses("header of", {.flags = 2});
  refuses("header calls for", {.tokens = 3});
  refuses("header calls for", {.tokens = UINT64_MAX / 2});
  refuses("header calls for",
          {.ids = {1, 2}, .offsets = {0, 2}, .tokens = UINT64_MAX, .documents = UINT64_MAX});
}

TEST_F(TokenFileTest, RefusesEveryFlippedBitAndEveryCut) {
  const std::string good = TokenBytes{.ids = {1, 2, 3}, .offsets = {0, 1, 3}, .mask = {1, 1, 0}}.build();
  write_file(path_, good);
  TokenFile::open(path_);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    write_file(path_, bad);
    EXPECT_THROW(TokenFile::open(path_), base::Error) << "byte " << i;
    write_file(path_, good.substr(0, i));
    EXPECT_THROW(TokenFile::open(path_), base::Error) << "cut at " << i;
  }
  write_file(path_, good + "x");
  EXPECT_THROW(TokenFile::open(path_), base::Error);
  expect_error(ErrorKind::data, "cannot open", [&] { TokenFile::open(dir_ / "none"); });
}

}  // namespace
}  // namespace sluice::engine
