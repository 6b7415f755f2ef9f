// A link of limited bandwidth, for emulated machines.
#pragma once
#include <chrono>
#include <cstddef>
#include <mutex>

namespace sluice::base {

// Thread-safe: what passes shares the link one after the other, in the order of the calls.
class Link {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Link(double per_second) : per_second_(per_second) {}  // units (bytes, FLOP) per second; 0: no limit

  bool limited() const { return per_second_ > 0; }
  // When a transfer of `units` that is asked for now ends.
  Clock::time_point reserve(double units);
  // Sleeps until then.
  void pass(double units);

 private:
  const double per_second_;
  std::mutex mutex_;  // guards free_at_
  Clock::time_point free_at_{};
};

}  // namespace sluice::base
