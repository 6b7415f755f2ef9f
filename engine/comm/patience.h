// How long to wait without progress.
#pragma once
#include <algorithm>
#include <chrono>

namespace sluice::comm {

// Counts only time in which this process runs: a process that was stopped (or a machine that slept) must not take its own absence for
// the silence of others. Ask at least ten times a second while waiting.
class Patience {
 public:
  explicit Patience(double seconds) : seconds_(seconds) { reset(); }
  double seconds() const { return seconds_; }
  void reset() {
    spent_ = 0;
    last_ = Clock::now();
  }
  bool over() {
    const auto now = Clock::now();
    spent_ += std::min(std::chrono::duration<double>(now - last_).count(), kLargestStep);
    last_ = now;
    return spent_ >= seconds_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kLargestStep = 0.5;  // seconds: more than a busy machine lets a thread wait for its turn
  double seconds_;
  double spent_ = 0;
  Clock::time_point last_;
};

}  // namespace sluice::comm
