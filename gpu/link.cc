#include "gpu/link.h"

#include <algorithm>
#include <thread>

namespace sluice::gpu {

void Link::pass(size_t bytes) {
  if (bytes_per_s_ <= 0) return;
  using Clock = std::chrono::steady_clock;
  const auto time =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_s_));
  Clock::time_point end;
  {
    const std::lock_guard lock(mutex_);
    end = free_at_ = std::max(free_at_, Clock::now()) + time;
  }
  std::this_thread::sleep_until(end);
}

}  // namespace sluice::gpu
