// How causal attention over packed documents is cut into query tiles, and tiles into items of parallel work.
#pragma once
#include <cstdint>
#include <vector>

namespace sluice::engine {

// Queries [first_query, end) see keys from first_key, each up to itself.
struct QueryTile {
  int64_t first_key, first_query, end;
  int64_t keys() const { return end - first_key; }
  int64_t rows() const { return end - first_query; }
};

// Tiles of one row and head that one thread works through, and the keys they touch.
struct WorkPart {
  std::vector<QueryTile> tiles;
  int64_t first_key = 0, end = 0;
};

// For each row of the batch: its tiles in `parts` parts of about equal work. Depends on shapes alone, never
// on threads.
std::vector<std::vector<WorkPart>> attention_parts(const std::vector<std::vector<int32_t>>& pieces,
                                                   int64_t tokens, int64_t tile, int64_t parts);

}  // namespace sluice::engine
