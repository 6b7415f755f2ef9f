// A link of limited bandwidth, for the emulated device.
#pragma once
#include <chrono>
#include <cstddef>
#include <mutex>

namespace sluice::gpu {

// Thread-safe: transfers share the link one after the other.
class Link {
 public:
  explicit Link(double gb_per_s) : bytes_per_s_(gb_per_s * 1e9) {}  // 0: no limit

  // Sleeps until a transfer of `bytes` that is asked for now would have ended.
  void pass(size_t bytes);

 private:
  const double bytes_per_s_;
  std::mutex mutex_;  // guards free_at_
  std::chrono::steady_clock::time_point free_at_{};
};

}  // namespace sluice::gpu
