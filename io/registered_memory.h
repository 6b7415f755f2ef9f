// Which registered buffer of a ring holds an address.
#pragma once
#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace sluice::io {

// Memory to register with io_uring, cut into buffers of at most 1 GiB (the kernel's limit). Not thread-safe.
class RegisteredMemory {
 public:
  static constexpr size_t kMaxBuffer = size_t{1} << 30;

  void add(std::span<const std::span<std::byte>> regions);
  void clear() { buffers_.clear(); }
  bool empty() const { return buffers_.empty(); }
  size_t bytes() const;
  std::span<const iovec> buffers() const { return buffers_; }
  // Index of the buffer that holds all of the range; none when no single one does.
  std::optional<int> find(const std::byte* data, size_t bytes) const;

 private:
  std::vector<iovec> buffers_;  // by address
};

}  // namespace sluice::io
