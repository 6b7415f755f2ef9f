// One HTML page about a run: charts as inline SVG, no network, no scripts.
#pragma once
#include <string>

#include "apps/run_metrics.h"
#include "configs/run_config.h"

namespace sluice::apps {

std::string report_page(const configs::RunConfig& config, const RunMetrics& metrics);

}  // namespace sluice::apps
