// One HTML page about a run: charts as inline SVG, no network, no scripts.
#pragma once
#include <string>

#include "apps/run_figures.h"
#include "configs/run_config.h"

namespace sluice::apps {

std::string report_page(const configs::RunConfig& config, const RunRecord& run);

}  // namespace sluice::apps
