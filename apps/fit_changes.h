// Settings that make a run need less of a place.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/planned_run.h"

namespace sluice::apps {

struct Change {
  using Setting = std::pair<std::string, std::string>;  // key, value as --set takes it
  std::string place;                                    // that needs less: "gpu", "host", "disk"
  std::vector<Setting> settings;
  std::optional<Setting> from = {};  // goes with this value of a key alone
  std::string note = {};             // "a smaller batch"
};

// Numbers stay the same; those that cost the least time first.
std::vector<Change> harmless_changes(const PlannedRun& run);

// Another micro-batch, loss chunk, batch or sequence; the mildest first.
std::vector<Change> other_changes(const configs::RunConfig& config);

// Does the config have something to change there?
bool applies(const Change& change, const configs::RunConfig& config);

// How many tiles of the run one of its plan holds: a large model is planned with coarser ones.
uint64_t tile_scale(const PlannedRun& run);
// With pools of as many bytes in tiles of the plan, rounded down: what runs with these runs with the changes.
std::vector<Change> with_planned_pools(std::vector<Change> changes, const PlannedRun& run);

// "execution.keep_graphs = 0, execution.boundaries = host". Where two changes give the same key, the later one counts.
std::string changes_text(const std::vector<Change>& changes);
// The same as assignments, of which the last one of a key counts.
std::vector<std::string> assignments(const std::vector<Change>& changes);

}  // namespace sluice::apps
