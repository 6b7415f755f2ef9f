// What to change in a run that does not fit.
#pragma once
#include <string>

#include "apps/planned_run.h"

namespace sluice::apps {

// For each place that is too small: the least change that would fit, numbers unchanged where possible; else
// how much would have to be there. Empty when everything fits. Plans the memory of each change that it
// considers.
std::string fit_advice(const PlannedRun& run, const engine::HfConfig& model);

}  // namespace sluice::apps
