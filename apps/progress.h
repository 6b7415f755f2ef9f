// Progress of long work on standard error: a bar on a terminal, otherwise a line now and then.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace sluice::apps {

// Work that takes less than a second shows nothing. Not thread-safe.
class Progress {
 public:
  void update(const std::string& what, uint64_t done, uint64_t total);

 private:
  void draw(uint64_t done, uint64_t total, double seconds);

  std::string what_;
  std::chrono::steady_clock::time_point begun_, drawn_;
};

}  // namespace sluice::apps
