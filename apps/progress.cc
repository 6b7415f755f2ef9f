#include "apps/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/units.h"

namespace sluice::apps {

using Clock = std::chrono::steady_clock;

void Progress::update(const std::string& what, uint64_t done, uint64_t total) {
  const auto now = Clock::now();
  if (what != what_) {
    what_ = what;
    begun_ = now;
    drawn_ = now;
  }
  const double seconds = std::chrono::duration<double>(now - begun_).count();
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const double pause = std::chrono::duration<double>(now - drawn_).count();
  const bool last = done >= total;
  if (seconds < 1 || (!last && pause < (terminal ? 0.2 : 10))) return;
  drawn_ = now;
  draw(done, total, seconds);
  if (last) what_.clear();
}

void Progress::draw(uint64_t done, uint64_t total, double seconds) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const double share = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  const std::string rest = done >= total ? base::format_duration(seconds)
                                         : base::format_duration(seconds / share * (1 - share)) + " left";
  if (!terminal) {
    fmt::print(stderr, "{}: {:.0f} %, {}\n", what_, share * 100, rest);
    return;
  }
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(share * kWidth);
  fmt::print(stderr, "\r{} [{:=<{}}{: <{}}] {:3.0f} %, {}\033[K{}", what_, "", filled, "", kWidth - filled, share * 100, rest,
             done >= total ? "\n" : "");
  std::fflush(stderr);
}

}  // namespace sluice::apps
