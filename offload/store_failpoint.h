// Named points of the store's protocol where a test may stop the process. Off by default.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace sluice::offload {

// In the order of a store's life. A point is passed after what its name says has been done.
std::span<const std::string_view> failpoint_names();

// Two ways in: a callback (it may throw, or end the process), and for whole programs the environment:
// SLUICE_FAILPOINT=name:count ends the process with _exit(137) at the count-th pass of the point (count from
// 1).
class Failpoints {
 public:
  using Callback = std::function<void(std::string_view name)>;
  explicit Failpoints(Callback callback);  // Error(config) when the environment names no failpoint
  void pass(std::string_view name);

 private:
  Callback callback_;
  std::string stop_at_;
  uint64_t passes_left_ = 0;
};

}  // namespace sluice::offload
