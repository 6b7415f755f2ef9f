#include "engine/outliers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/statistics.h"

namespace sluice::engine {
std::optional<std::string> OutlierWatch::add(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  std::optional<std::string> message;
  if (values_.size() >= kLeast) {
    const double middle = base::median(values_);
    std::vector<double> distances;
    for (const double v : values_) distances.push_back(std::abs(v - middle));
    const double spread = base::median(std::move(distances));
    if (spread > 0 && value > middle + kDeviations * spread)
      message = fmt::format("{} {:.4g} stands out: the last {} have median {:.4g} and median deviation {:.2g}", name_, value, values_.size(),
                            middle, spread);
  }
  values_.push_back(value);
  if (values_.size() > kWindow) values_.erase(values_.begin());
  return message;
}

std::optional<std::string> EvalWatch::add(uint64_t step, double loss) {
  points_.push_back({step, loss});
  const size_t n = points_.size();
  if (n < 3 || points_[n - 3].loss >= points_[n - 2].loss || points_[n - 2].loss >= loss) return std::nullopt;
  const auto best = std::min_element(points_.begin(), points_.end(), [](const Point& a, const Point& b) { return a.loss < b.loss; });
  return fmt::format("the evaluation loss has risen twice in a row, to {:.4f}; its best is {:.4f} after step {}: the model may be learning the "
                     "training text by heart",
                     loss, best->loss, best->step);
}

}  // namespace sluice::engine
