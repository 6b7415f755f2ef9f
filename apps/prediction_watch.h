// Does a run take the time that its plan had said?
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace sluice::apps {

// Says once, and early, that the plan's figure is not to be relied on. Not thread-safe.
class PredictionWatch {
 public:
  static constexpr size_t kWarmUp = 2, kSteps = 8;  // the first steps fill pools and caches; the median of the next ones counts
  static constexpr double kOff = 0.15;

  // predicted: seconds of a step; 0: nothing is known.
  // measured: the machine's rates were measured on it, and not taken from a profile that was named.
  explicit PredictionWatch(double predicted, bool measured = true) : predicted_(predicted), measured_(measured) {}
  // A message when the steps so far are off, in either direction.
  std::optional<std::string> add(double step_seconds);

 private:
  const double predicted_;
  const bool measured_;
  size_t steps_ = 0;
  std::vector<double> seconds_;
};

}  // namespace sluice::apps
