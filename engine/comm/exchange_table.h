// Rank 0's table of the exchanges at work: who has come, who is late.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/patience.h"

namespace sluice::comm {

using ExchangeKey = std::pair<uint8_t, uint64_t>;  // topic, number within the topic

// Not thread-safe.
class ExchangeTable {
 public:
  explicit ExchangeTable(int world) : world_(world) {}

  // What all ranks gave, once the last of them has come.
  std::optional<std::vector<std::vector<std::byte>>> add(const ExchangeKey& key, int rank, std::vector<std::byte> bytes, double deadline);

  struct Late {
    int rank;  // the first of those that are missing
    std::string reason;
  };
  // An exchange whose patience is over. Call at least ten times a second.
  std::optional<Late> late();

 private:
  struct Pending {
    std::vector<std::optional<std::vector<std::byte>>> given;  // by rank
    int missing;
    Patience patience;
  };
  const int world_;
  std::map<ExchangeKey, Pending> pending_;
};

// All contributions as one message, and back. Error(bug) when it is none.
std::vector<std::byte> pack(const std::vector<std::vector<std::byte>>& parts);
std::vector<std::vector<std::byte>> unpack(const std::vector<std::byte>& bytes, int world);

}  // namespace sluice::comm
