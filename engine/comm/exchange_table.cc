#include "engine/comm/exchange_table.h"

#include <cstring>

#include "base/error.h"

namespace sluice::comm {

std::optional<std::vector<std::vector<std::byte>>> ExchangeTable::add(const ExchangeKey& key, int rank, std::vector<std::byte> bytes,
                                                                      double deadline) {
  const auto count = static_cast<size_t>(world_);
  auto [found, fresh] = pending_.try_emplace(key, Pending{{}, world_, Patience(deadline)});
  Pending& pending = found->second;
  pending.given.resize(count);
  // The most patient one decides: it knows why the others take long.
  if (deadline > pending.patience.seconds()) pending.patience = Patience(deadline);
  auto& place = pending.given[static_cast<size_t>(rank)];
  SLUICE_CHECK(!place, "a rank came twice to the same exchange");
  place = std::move(bytes);
  if (--pending.missing > 0) return std::nullopt;
  std::vector<std::vector<std::byte>> all;
  for (auto& given : pending.given) all.push_back(std::move(*given));
  pending_.erase(found);
  return all;
}

std::optional<ExchangeTable::Late> ExchangeTable::late() {
  for (auto& [key, pending] : pending_) {
    if (!pending.patience.over()) continue;
    Late late{-1, ""};
    std::string others;
    for (int rank = 0; rank < world_; ++rank) {
      if (pending.given[static_cast<size_t>(rank)]) continue;
      if (late.rank < 0) late.rank = rank;
      else others += fmt::format(", {}", rank);
    }
    late.reason = fmt::format("the other ranks have waited for it for {:.0f} s{}", pending.patience.seconds(),
                              others.empty() ? "" : " (so have they for " + others.substr(2) + ")");
    return late;
  }
  return std::nullopt;
}

std::vector<std::byte> pack(const std::vector<std::vector<std::byte>>& parts) {
  std::vector<std::byte> out;
  for (const auto& part : parts) {
    const uint64_t size = part.size();
    const auto* bytes = reinterpret_cast<const std::byte*>(&size);
    out.insert(out.end(), bytes, bytes + sizeof size);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

std::vector<std::vector<std::byte>> unpack(const std::vector<std::byte>& bytes, int world) {
  std::vector<std::vector<std::byte>> parts;
  size_t at = 0;
  for (int rank = 0; rank < world; ++rank) {
    uint64_t size = 0;
    SLUICE_CHECK(bytes.size() - at >= sizeof size, "a result of an exchange is cut");
    std::memcpy(&size, bytes.data() + at, sizeof size);
    at += sizeof size;
    SLUICE_CHECK(bytes.size() - at >= size, "a result of an exchange is cut");
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    parts.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
    at += size;
  }
  return parts;
}

}  // namespace sluice::comm
