#include "apps/prediction_watch.h"

#include <fmt/format.h>

#include <cmath>

#include "base/statistics.h"
#include "base/units.h"

namespace sluice::apps {

std::optional<std::string> PredictionWatch::add(double step_seconds) {
  if (predicted_ <= 0 || ++steps_ <= kWarmUp || seconds_.size() == kSteps) return std::nullopt;
  seconds_.push_back(step_seconds);
  if (seconds_.size() < kSteps) return std::nullopt;
  const double measured = base::median(seconds_), off = measured / predicted_ - 1;
  if (std::abs(off) <= kOff) return std::nullopt;
  const std::string text = fmt::format("a step takes {}, {:.0f} % {} than the {} that were planned: the machine is {} than ", base::format_duration(measured),
                                       100 * std::abs(off), off > 0 ? "more" : "less", base::format_duration(predicted_), off > 0 ? "slower" : "faster");
  return text + (measured_ ? "when it was measured (by another program at work, most often). --measure measures it again, and plans with that"
                           : "the profile that --machine names. `sluice bench --out FILE` makes one of this machine");
}

}  // namespace sluice::apps
