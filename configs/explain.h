// A RunConfig as JSON, as a table for people, and compared with another.
#pragma once
#include <string>
#include <vector>

#include "configs/json_text.h"
#include "configs/run_config.h"

namespace sluice::configs {

// Every value that is known, in the order of the documentation; parse_config of it gives the same config.
// Stored with the run.
Json resolved_json(const RunConfig& config);

struct Explained {
  std::string key, value, origin, help;
};
std::vector<Explained> explain(
    const RunConfig& config);  // keys that do not apply (other schedulers' parameters) are left out

// Differences among the numeric settings: those that may change bits of the result. Empty: a resume gives the
// bits of an uninterrupted run. Choose open values first (choose_compute_threads).
struct Difference {
  std::string key, stored, now;
};
std::vector<Difference> compare_numeric_settings(const RunConfig& stored, const RunConfig& now);
// Among the others, which may change from start to start: where bytes live, what comes next in the run (learning rate, steps, data).
std::vector<Difference> compare_free_settings(const RunConfig& stored, const RunConfig& now);

}  // namespace sluice::configs
