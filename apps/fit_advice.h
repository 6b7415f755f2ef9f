// What to change in a run that does not fit.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "apps/planned_run.h"

namespace sluice::apps {

// Plans the run again with "key=value" settings, as --set takes them, over what was given; its memory is enough. Error(config) for what
// cannot be.
using Replan = std::function<PlannedRun(const std::vector<std::string>& set)>;

// "gpu needs 58 GiB and has 22 GiB: execution.boundaries = host, memory.host = 180GiB would fit": every place that is too small, and one
// set of changes with which all of them are large enough together. They change no numbers: first settings, as few as will do; where no
// settings help, also the memory that there would have to be with the best ones, or else another batch. Empty when everything fits.
std::string fit_advice(const PlannedRun& run, const Replan& replan);

}  // namespace sluice::apps
