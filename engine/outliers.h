// Figures of a run that stand out: losses and norms far from their neighbours, an evaluation loss that goes up again.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::engine {

// More than 6 median absolute deviations above the median of the values before it. Not thread-safe.
class OutlierWatch {
 public:
  static constexpr size_t kWindow = 50, kLeast = 20;  // values that are looked back on; below kLeast nothing stands out
  static constexpr double kDeviations = 6;

  explicit OutlierWatch(std::string name) : name_(std::move(name)) {}
  // A message when the value stands out; values that are not finite are left to others.
  std::optional<std::string> add(double value);

 private:
  const std::string name_;
  std::vector<double> values_;
};

// Two rises in a row. Not thread-safe.
class EvalWatch {
 public:
  std::optional<std::string> add(uint64_t step, double loss);

 private:
  struct Point {
    uint64_t step;
    double loss;
  };
  std::vector<Point> points_;
};

}  // namespace sluice::engine
