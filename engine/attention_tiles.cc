#include "engine/attention_tiles.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::engine {
namespace {

std::vector<QueryTile> row_tiles(const std::vector<int32_t>& starts, int64_t tokens, int64_t tile) {
  SLUICE_CHECK(!starts.empty() && starts[0] == 0, "the first piece of a row starts at 0");
  std::vector<QueryTile> tiles;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t begin = starts[i], end = i + 1 < starts.size() ? starts[i + 1] : tokens;
    SLUICE_CHECK(begin < end && end <= tokens, "pieces ascend inside the row");
    for (int64_t q = begin; q < end; q += tile) tiles.push_back({begin, q, std::min(q + tile, end)});
  }
  return tiles;
}

}  // namespace

std::vector<std::vector<WorkPart>> attention_parts(const std::vector<std::vector<int32_t>>& pieces,
                                                   int64_t tokens, int64_t tile, int64_t parts) {
  std::vector<std::vector<WorkPart>> rows;
  for (const auto& starts : pieces) {
    const std::vector<QueryTile> tiles = row_tiles(starts, tokens, tile);
    int64_t total = 0, done = 0;
    for (const QueryTile& t : tiles) total += t.rows() * t.keys();
    std::vector<WorkPart> row(static_cast<size_t>(parts));
    for (const QueryTile& t : tiles) {
      WorkPart& part = row[static_cast<size_t>(std::min(parts - 1, done * parts / total))];
      if (part.tiles.empty()) part.first_key = t.first_key;
      part.tiles.push_back(t);
      part.end = t.end;
      done += t.rows() * t.keys();
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace sluice::engine
