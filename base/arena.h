// Page-backed memory of exact size: one mmap, huge pages when the kernel grants them, 2 MiB aligned.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sluice::base {

// Owns one anonymous mapping, its pages in turn on the NUMA nodes that the process may use. Move-only; unmapped by the destructor. Not
// inherited by fork (MADV_DONTFORK).
class Arena {
 public:
  Arena() = default;
  // bytes are rounded up to 4 KiB; zero gives an empty arena. Pages are touched (zero) before the constructor
  // returns, so that a lack of memory shows here: Error(host_memory) names the purpose, need and what is available.
  Arena(size_t bytes, std::string purpose);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& purpose() const { return purpose_; }
  std::span<std::byte> span(size_t offset, size_t bytes) const;  // bounds-checked
  std::span<std::byte> all() const { return {data_, size_}; }

 private:
  void unmap() noexcept;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  void* mapping_ = nullptr;  // with the slack for alignment
  size_t mapping_bytes_ = 0;
  std::string purpose_;
};

// Bytes this process may still take: the least of MemAvailable and what its cgroup leaves.
uint64_t available_host_memory();

}  // namespace sluice::base
