// The memory of a run on its page: a table, and bars.
#pragma once
#include <string>

#include "apps/run_figures.h"

namespace sluice::apps {

// Empty when the run has no memory.json.
std::string memory_section(const RunRecord& run);

}  // namespace sluice::apps
