// Which host memory a device may copy from and to by itself: the ranges registered with it.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <span>

namespace sluice::gpu {

// Thread-safe. Ranges do not overlap. A large region is registered in pieces, and one copy may not cross from a piece into the
// next: so copies are cut at the borders.
class HostRegistry {
 public:
  void add(std::span<const std::byte> piece);           // Error(bug) when it overlaps another
  void remove(const std::byte* begin) noexcept;         // of a piece; unknown ones are ignored
  bool contains(const std::byte* address) const { return !find(address).empty(); }

  // Calls part(offset, bytes) for each share of [begin, begin + bytes) that lies in one piece, in order. Error(bug) when any byte
  // is not registered: such a copy would wait for the device on the thread that only enqueues.
  void for_each_part(const std::byte* begin, size_t bytes, const std::function<void(size_t offset, size_t bytes)>& part) const;

 private:
  // The piece that holds the address; zero length: none.
  std::span<const std::byte> find(const std::byte* address) const;

  mutable std::mutex mutex_;                    // guards pieces_
  std::map<const std::byte*, size_t> pieces_;   // begin -> bytes
};

}  // namespace sluice::gpu
