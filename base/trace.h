// Spans of work for a Chrome trace (chrome://tracing, Perfetto): one row per lane or thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace sluice::base {

// Thread-safe. Times are seconds since the trace began.
class Trace {
 public:
  Trace();
  double now() const;
  void add(const std::string& row, const std::string& name, double begin, double end, uint64_t bytes = 0);
  void write(const std::filesystem::path& file) const;  // Chrome JSON; Error(disk) when it cannot

 private:
  struct Span {
    std::string row, name;
    double begin, end;
    uint64_t bytes;
  };
  const std::chrono::steady_clock::time_point start_;
  mutable std::mutex mutex_;  // guards spans_
  std::vector<Span> spans_;
};

}  // namespace sluice::base
