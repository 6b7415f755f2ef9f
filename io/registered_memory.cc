#include "io/registered_memory.h"

#include <algorithm>
#include <functional>

namespace sluice::io {
namespace {

const std::byte* begin_of(const iovec& buffer) {
  return static_cast<const std::byte*>(buffer.iov_base);
}

bool before(const std::byte* a, const std::byte* b) {
  return std::less<const std::byte*>()(a, b);
}

}  // namespace

void RegisteredMemory::add(std::span<const std::span<std::byte>> regions) {
  for (const std::span<std::byte> region : regions)
    for (size_t offset = 0; offset < region.size(); offset += kMaxBuffer)
      buffers_.push_back({region.data() + offset, std::min(kMaxBuffer, region.size() - offset)});
  std::sort(buffers_.begin(), buffers_.end(),
            [](const iovec& a, const iovec& b) { return before(begin_of(a), begin_of(b)); });
}

size_t RegisteredMemory::bytes() const {
  size_t sum = 0;
  for (const iovec& buffer : buffers_) sum += buffer.iov_len;
  return sum;
}

std::optional<int> RegisteredMemory::find(const std::byte* data, size_t bytes) const {
  const auto after =
      std::upper_bound(buffers_.begin(), buffers_.end(), data,
                       [](const std::byte* p, const iovec& buffer) { return before(p, begin_of(buffer)); });
  if (after == buffers_.begin()) return std::nullopt;
  const iovec& buffer = *(after - 1);
  const auto skip = static_cast<size_t>(data - begin_of(buffer));
  if (skip > buffer.iov_len || bytes > buffer.iov_len - skip) return std::nullopt;
  return static_cast<int>(after - 1 - buffers_.begin());
}

}  // namespace sluice::io
