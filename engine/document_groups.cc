#include "engine/document_groups.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::engine {
namespace {

// Lengths of all pieces, rows after one another.
std::vector<int64_t> lengths_of(const std::vector<std::vector<int32_t>>& pieces, int64_t tokens) {
  std::vector<int64_t> lengths;
  for (const auto& starts : pieces) {
    SLUICE_CHECK(!starts.empty() && starts[0] == 0, "the first piece of a row starts at 0");
    for (size_t i = 0; i < starts.size(); ++i) {
      const int64_t end = i + 1 < starts.size() ? starts[i + 1] : tokens;
      SLUICE_CHECK(starts[i] < end && end <= tokens, "pieces ascend inside the row");
      lengths.push_back(end - starts[i]);
    }
  }
  return lengths;
}

int64_t most_pieces(size_t rows, int64_t tokens) {
  const auto count = static_cast<int64_t>(rows);
  return std::max(count, count * tokens / kTokensPerDocument);
}

}  // namespace

std::vector<DocumentGroup> document_groups(const std::vector<std::vector<int32_t>>& pieces, int64_t tokens) {
  const int64_t most = most_pieces(pieces.size(), tokens);
  std::vector<DocumentGroup> groups;
  int64_t token = 0, start = 0;
  for (const int64_t length : lengths_of(pieces, tokens)) {
    if (groups.empty() || groups.back().pieces == most) {
      groups.push_back({token, 0, start, 0, 0});
      ++start;  // a group has one start more than pieces
    }
    DocumentGroup& group = groups.back();
    group.tokens += length;
    group.pieces += 1;
    group.longest = std::max(group.longest, length);
    token += length;
    ++start;
  }
  return groups;
}

void write_document_starts(const std::vector<std::vector<int32_t>>& pieces, int64_t tokens, std::span<int32_t> out) {
  const std::vector<int64_t> lengths = lengths_of(pieces, tokens);
  auto length = lengths.begin();
  for (const DocumentGroup& group : document_groups(pieces, tokens)) {
    const std::span<int32_t> starts = out.subspan(static_cast<size_t>(group.first_start), static_cast<size_t>(group.pieces + 1));
    starts[0] = 0;
    for (int64_t i = 0; i < group.pieces; ++i)
      starts[static_cast<size_t>(i + 1)] = starts[static_cast<size_t>(i)] + static_cast<int32_t>(*length++);
  }
}

}  // namespace sluice::engine
