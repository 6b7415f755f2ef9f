// How large a model of the same shape the budgets would hold.
#pragma once
#include <cstdint>
#include <optional>

#include "apps/planned_run.h"

namespace sluice::apps {

struct LargestModel {
  int64_t layers = 0;
  uint64_t parameters = 0;
};

// With the run's settings, more or fewer layers of the same width; within two layers in a hundred. None: not even one layer fits, or
// nothing is known of the budgets.
std::optional<LargestModel> largest_model(const PlannedRun& run, const engine::HfConfig& model);

}  // namespace sluice::apps
