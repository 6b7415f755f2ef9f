// Memory for tensors on the emulated device: charged to the allocating thread's device, blocks kept for reuse.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace sluice::gpu {

struct TensorMemoryStats {
  uint64_t live = 0;       // bytes of blocks in use, rounded up to their size class
  uint64_t cached = 0;     // bytes of blocks kept for reuse
  uint64_t uncharged = 0;  // requested bytes alive that no device was charged for
};

// A caching allocator. Freed blocks are kept by size class (eight per power of two, so less than 1/8 of a block is unused) and
// handed out again: a fresh 64 MiB block costs some 40 ms of page faults. Blocks of 2 MiB and more lie on huge pages. What is
// cached never exceeds the most that was ever live (or 256 MiB). Thread-safe.
class TensorMemory {
 public:
  // 64-byte aligned; nullptr for 0 bytes. Charges exactly `bytes` to thread_account(), if there is one: Error(device_memory) over
  // its budget. Error(host_memory) when the system has none. Filled with NaN when the account asks for poison.
  void* allocate(size_t bytes);
  void free(void* data) noexcept;  // on any thread

  TensorMemoryStats stats() const;
  void release_cached() noexcept;  // back to the system

 private:
  struct Block;
  static constexpr size_t kClasses = 320;

  Block* take(size_t size_class);  // nullptr when the system has no memory
  void release_cached_locked() noexcept;

  mutable std::mutex mutex_;  // guards all below
  std::array<Block*, kClasses> free_{};
  TensorMemoryStats stats_;
  uint64_t live_peak_ = 0;
};

}  // namespace sluice::gpu
