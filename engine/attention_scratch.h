// Memory that a thread works in while it computes attention on the CPU: what the code takes, and the planner counts.
#pragma once
#include <cstdint>

#include "gpu/cpu_products.h"

namespace sluice::engine {

inline constexpr int64_t kAttentionQueries = 64;  // of a tile
inline constexpr int64_t kFewHeads = 32;          // below this many (row, head) pairs each is split in two, to balance the threads

// Does this processor compute heads of so many elements by its own bf16 products?
inline bool by_bf16_products(bool bf16, int64_t head_dim) { return bf16 && head_dim % 2 == 0 && gpu::cpu::has_bf16_products(); }

// Parts of one allocation, in words of 4 bytes. longest: keys of a tile; bf16_products: with gpu/cpu_products.h.
struct AttentionScratch {
  int64_t keys, keys_by_rows, values;  // of one head: [tokens][head_dim] in fp32; or pairs along head_dim, along tokens, either
  int64_t tile;                        // [queries][head_dim]: queries, gradients, results
  int64_t scores;                      // [queries][longest]
  int64_t rounded;                     // the same in bf16
  int64_t paired;                      // the same as pairs of queries
  int64_t paired_tile;                 // a tile's vectors as pairs of queries
  int64_t forward, backward;           // all in all
};

constexpr AttentionScratch attention_scratch(int64_t tokens, int64_t head_dim, int64_t longest, bool bf16_products) {
  constexpr int64_t kQueries = kAttentionQueries;
  AttentionScratch s{};
  s.tile = kQueries * head_dim;
  s.scores = kQueries * longest;
  if (!bf16_products) {
    s.keys = s.values = tokens * head_dim;
    s.forward = s.keys + s.values + 2 * s.tile + kQueries + s.scores;
    s.backward = s.keys + s.values + 3 * s.tile + 2 * s.scores;
    return s;
  }
  const auto padded = gpu::cpu::padded_columns;
  const int64_t by_columns = head_dim / 2 * padded(tokens), by_rows = (tokens + 1) / 2 * padded(head_dim);
  s.keys = by_columns;
  s.keys_by_rows = by_rows;
  s.values = by_columns > by_rows ? by_columns : by_rows;
  s.rounded = kQueries * ((longest + 1) / 2);
  s.paired = kQueries / 2 * padded(longest);
  s.paired_tile = kQueries / 2 * padded(head_dim);
  s.forward = s.keys + s.values + s.tile + kQueries + s.scores + s.rounded;
  s.backward = s.keys + s.keys_by_rows + s.values + s.tile + 2 * s.scores + s.rounded + s.paired + s.paired_tile;
  return s;
}

}  // namespace sluice::engine
