// The figures of a whole run: what its steps took, how well each resource was used, and what stood in the way.
#pragma once
#include <string>
#include <vector>

#include "apps/run_memory.h"
#include "apps/run_metrics.h"
#include "apps/run_starts.h"

namespace sluice::apps {

// What is known of a run; what is absent is left out of the figures.
struct RunRecord {
  RunMetrics metrics;
  std::vector<RunStart> starts;
  std::optional<RunMemory> memory;
};

struct Figure {
  std::string name, value;  // for people
};

// Medians over the steps, but for the first, which fills the pools; sums where a run adds up. docs/design.md lists them.
std::vector<Figure> run_figures(const RunRecord& run);

}  // namespace sluice::apps
