#include "engine/document_groups.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice::engine {
namespace {

using Pieces = std::vector<std::vector<int32_t>>;

std::vector<int32_t> starts_of(const Pieces& pieces, int64_t tokens, size_t used) {
  std::vector<int32_t> out(2 * pieces.size() * static_cast<size_t>(tokens), -1);
  write_document_starts(pieces, tokens, out);
  for (size_t i = used; i < out.size(); ++i) EXPECT_EQ(out[i], -1) << i;
  out.resize(used);
  return out;
}

TEST(DocumentGroups, WholeRowsAreOneGroup) {
  const Pieces pieces{{0}, {0}, {0}};
  const auto groups = document_groups(pieces, 100);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].tokens, 300);
  EXPECT_EQ(groups[0].pieces, 3);
  EXPECT_EQ(groups[0].longest, 100);
  EXPECT_EQ(starts_of(pieces, 100, 4), (std::vector<int32_t>{0, 100, 200, 300}));
}

TEST(DocumentGroups, PackedPiecesKeepTheirOrderAndLengths) {
  const Pieces pieces{{0, 700}, {0, 10, 900}};
  const auto groups = document_groups(pieces, 1024);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].longest, 890);
  EXPECT_EQ(starts_of(pieces, 1024, 6), (std::vector<int32_t>{0, 700, 1024, 1034, 1924, 2048}));
}

TEST(DocumentGroups, ManyShortPiecesMakeMoreGroups) {
  // 256 tokens in 8 rows of 32: at most 8 pieces a group; 2 tokens each.
  Pieces pieces(8);
  for (auto& row : pieces)
    for (int32_t i = 0; i < 32; i += 2) row.push_back(i);
  const auto groups = document_groups(pieces, 32);
  ASSERT_EQ(groups.size(), 16u);
  int64_t token = 0, start = 0;
  for (const DocumentGroup& group : groups) {
    EXPECT_EQ(group.first_token, token);
    EXPECT_EQ(group.first_start, start);
    EXPECT_EQ(group.pieces, 8);
    EXPECT_EQ(group.longest, 2);
    token += group.tokens;
    start += group.pieces + 1;
  }
  EXPECT_EQ(token, 256);
  const std::vector<int32_t> starts = starts_of(pieces, 32, static_cast<size_t>(start));
  for (const DocumentGroup& group : groups)
    for (int64_t i = 0; i <= group.pieces; ++i) EXPECT_EQ(starts[static_cast<size_t>(group.first_start + i)], 2 * i);
}

TEST(DocumentGroups, OneTokenPiecesFitTheOutput) {
  Pieces pieces(1);
  for (int32_t i = 0; i < 64; ++i) pieces[0].push_back(i);
  EXPECT_EQ(document_groups(pieces, 64).size(), 64u);  // at most one piece a group: no row has 128 tokens
  EXPECT_EQ(starts_of(pieces, 64, 128).back(), 1);
}

TEST(DocumentGroups, PiecesThatDoNotAscendAreABug) {
  EXPECT_THROW(document_groups({{0, 5, 5}}, 10), base::Error);
  EXPECT_THROW(document_groups({{1}}, 10), base::Error);
  EXPECT_THROW(document_groups({{0, 10}}, 10), base::Error);
}

}  // namespace
}  // namespace sluice::engine
