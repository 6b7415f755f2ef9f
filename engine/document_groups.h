// Packed documents of a micro-batch, as variable-length attention takes them: groups of pieces that go into one call.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::engine {

inline constexpr uint32_t kTokensPerDocument = 128;  // of a micro-batch, at the least, in one group

// Consecutive pieces of the flattened [rows * tokens].
struct DocumentGroup {
  int64_t first_token, tokens;
  int64_t first_start;  // of its starts in write_document_starts' output
  int64_t pieces;
  int64_t longest;      // tokens of the longest piece
};

// pieces: per row the starts of its documents, first 0. A group has at most one piece for each kTokensPerDocument of the micro-batch (and
// room for one a row): the backward kernel's scratch has some 128 rows for each piece, so that many short documents in one call
// would take a multiple of the memory. Depends on the pieces alone.
std::vector<DocumentGroup> document_groups(const std::vector<std::vector<int32_t>>& pieces, int64_t tokens);

// For each group its pieces + 1 starts, from 0 to its number of tokens, groups after one another. `out` has room for two entries a
// token, which is always enough.
void write_document_starts(const std::vector<std::vector<int32_t>>& pieces, int64_t tokens, std::span<int32_t> out);

}  // namespace sluice::engine
