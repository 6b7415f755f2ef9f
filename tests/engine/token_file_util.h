// Builds the bytes of a token file by hand, right or wrong.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "tests/engine/files_util.h"

namespace sluice::engine {

struct TokenBytes {
  uint32_t version = 1;
  std::optional<uint32_t> flags;  // as the mask is given
  uint64_t vocab = 100, tokenizer = 0;
  std::vector<uint32_t> ids = {1, 2};
  std::vector<uint64_t> offsets = {0, 2};
  std::vector<uint8_t> mask;                  // empty: none
  std::optional<uint64_t> tokens, documents;  // as the vectors are, unless given

  std::string build() const {
    std::string body;
    for (const uint64_t o : offsets) body += u64_bytes(o);
    for (const uint32_t id : ids) body += u64_bytes(id).substr(0, vocab <= 65536 ? 2 : 4);
    body.append(mask.begin(), mask.end());
    const uint64_t words = uint64_t{flags.value_or(mask.empty() ? 0u : 1u)} << 32 | version;
    std::string header = "SLUICETK" + u64_bytes(words) + u64_bytes(vocab) +
                         u64_bytes(tokens.value_or(ids.size())) +
                         u64_bytes(documents.value_or(offsets.size() - 1)) + u64_bytes(tokenizer) +
                         u64_bytes(base::xxh3(body.data(), body.size()));
    return header + u64_bytes(base::xxh3(header.data(), header.size())) + body;
  }
};

}  // namespace sluice::engine
