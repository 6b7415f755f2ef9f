#include "base/link.h"

#include <algorithm>
#include <thread>

namespace sluice::base {

Link::Clock::time_point Link::reserve(double units) {
  const Clock::time_point now = Clock::now();
  if (!limited()) return now;
  const auto time = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(units / per_second_));
  const std::lock_guard lock(mutex_);
  return free_at_ = std::max(free_at_, now) + time;
}

void Link::pass(double units) {
  if (limited()) std::this_thread::sleep_until(reserve(units));
}

}  // namespace sluice::base
