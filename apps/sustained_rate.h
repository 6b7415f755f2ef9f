// Writing to a disk until the rate is flat: what a drive keeps up when its cache is full.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

namespace sluice::apps {

struct SustainedRate {
  std::vector<double> windows;       // bytes per second
  bool flat = false;                 // the last five are within a tenth of their median
  double bytes = 0;                  // written in all
  std::optional<double> fast_bytes;  // written before the rate first fell below 85 % of the first windows'

  double rate() const;  // median of the last five
  void add(double written, double seconds);  // the next window
  // Enough is known: flat, and the file has been written once. What a cache takes is even too.
  bool settled(double file_bytes) const { return flat && bytes >= file_bytes; }

  static constexpr size_t kFlat = 5;
};

}  // namespace sluice::apps
