#include "gpu/host_registry.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::gpu {

void HostRegistry::add(std::span<const std::byte> piece) {
  if (piece.empty()) return;
  const std::lock_guard lock(mutex_);
  const auto next = pieces_.lower_bound(piece.data());
  const bool meets_next = next != pieces_.end() && next->first < piece.data() + piece.size();
  const bool meets_previous = next != pieces_.begin() && std::prev(next)->first + std::prev(next)->second > piece.data();
  if (meets_next || meets_previous) base::fail(base::ErrorKind::bug, "host memory is registered twice with the device");
  pieces_.emplace(piece.data(), piece.size());
}

void HostRegistry::remove(const std::byte* begin) noexcept {
  const std::lock_guard lock(mutex_);
  pieces_.erase(begin);
}

std::span<const std::byte> HostRegistry::find(const std::byte* address) const {
  const std::lock_guard lock(mutex_);
  auto after = pieces_.upper_bound(address);
  if (after == pieces_.begin()) return {};
  --after;
  const std::byte* end = after->first + after->second;
  return address < end ? std::span(after->first, end) : std::span<const std::byte>();
}

void HostRegistry::for_each_part(const std::byte* begin, size_t bytes,
                                 const std::function<void(size_t offset, size_t bytes)>& part) const {
  for (size_t done = 0; done < bytes;) {
    const std::span<const std::byte> piece = find(begin + done);
    if (piece.empty())
      base::fail(base::ErrorKind::bug, "a copy of {} bytes between host and device needs registered host memory; byte {} is not", bytes,
                 done);
    const size_t part_bytes = std::min(bytes - done, static_cast<size_t>(piece.data() + piece.size() - (begin + done)));
    part(done, part_bytes);
    done += part_bytes;
  }
}

}  // namespace sluice::gpu
