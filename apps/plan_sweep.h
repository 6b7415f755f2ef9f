// One config planned with many values: a row each.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/planned_run.h"

namespace sluice::apps {

// What --sweep asks for: keys in the order given, each with its values.
struct Sweep {
  std::string key;
  std::vector<std::string> values;  // as --set takes them
};
// "key=value" adds a value to a key; a list adds each of its items: JSON, or bare words in brackets. Error(config).
std::vector<Sweep> read_sweeps(const std::vector<std::string>& arguments);

struct SweepRow {
  std::vector<std::string> set;   // "key=value" of every swept key
  std::optional<PlannedRun> run;  // none: it cannot be planned
  std::string error;
};
// All combinations, the last key fastest. An Error(config), (model) or (disk) of one becomes its row's
// message.
std::vector<SweepRow> run_sweep(const std::vector<Sweep>& sweeps,
                                const std::function<PlannedRun(const std::vector<std::string>& set)>& plan);

std::string sweep_text(const std::vector<SweepRow>& rows);
nlohmann::ordered_json sweep_json(const std::vector<SweepRow>& rows);

}  // namespace sluice::apps
