#include "apps/fit_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "apps/fit_changes.h"
#include "base/error.h"
#include "base/size_text.h"
#include "base/units.h"

namespace sluice::apps {
namespace {

constexpr const char* kPlaces[] = {"gpu", "host", "disk"};

// Of the device, estimates may be some percent off (engine/temporaries.h): what is advised must fit all the same. Elsewhere they are too
// large rather than too small.
uint64_t need(const PlannedRun& run, const std::string& place) {
  uint64_t bytes = run.need(place);
  for (const engine::MemoryRow& row : run.memory.rows)
    if (place == "gpu" && row.place == place && row.estimated && !row.beside) bytes += row.bytes / 20;
  return bytes;
}

bool fits(const PlannedRun& run, const std::string& place) { return run.have(place) == 0 || need(run, place) <= run.have(place); }
bool fits_memory(const PlannedRun& run) { return fits(run, "gpu") && fits(run, "host"); }

struct Trial {
  std::vector<Change> changes;
  PlannedRun run;  // with them
};

class Search {
 public:
  explicit Search(const Replan& replan) : replan_(replan) {}

  // None: such a run cannot be.
  std::optional<Trial> plan(std::vector<Change> changes) const {
    try {
      PlannedRun run = replan_(assignments(changes));
      if (gives_pools(run.config)) check_pools(changes, run);
      return Trial{std::move(changes), std::move(run)};
    } catch (const base::Error& error) {
      if (error.kind() == base::ErrorKind::bug) throw;
      return std::nullopt;
    }
  }

  // Place by place, every change that helps, until it fits or none is left.
  Trial relieve(Trial trial, const std::vector<Change>& changes) const {
    for (const char* place : kPlaces)
      for (const Change& change : changes) {
        if (fits(trial.run, place)) break;
        if (change.place != place || !applies(change, trial.run.config)) continue;
        std::optional<Trial> next = plan(with(trial.changes, change));
        if (next && helps(*next, trial, place)) trial = std::move(*next);
      }
    return trial;
  }

  // Without the changes that it does not take; the first `kept` stay.
  Trial fewest(Trial trial, size_t kept) const {
    for (size_t i = kept; i < trial.changes.size();) {
      std::vector<Change> fewer = trial.changes;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      std::optional<Trial> next = plan(std::move(fewer));
      if (next && fits_memory(next->run) && (fits(next->run, "disk") || !fits(trial.run, "disk"))) {
        trial = std::move(*next);
      } else {
        ++i;
      }
    }
    return trial;
  }

  // Memory as large as it has to be. More of one may mean less of the other, or other tiers: a few rounds.
  Trial enlarge(Trial trial) const {
    for (int round = 0; round < 4 && !fits_memory(trial.run); ++round) {
      std::vector<Change> changes = trial.changes;
      for (const char* place : {"gpu", "host"})
        if (!fits(trial.run, place)) changes.push_back({place, {{fmt::format("memory.{}", place), base::size_text(need(trial.run, place))}}});
      std::optional<Trial> next = plan(std::move(changes));
      if (!next) break;
      trial = std::move(*next);
    }
    return trial;
  }

 private:
  // Those of the plan builder always run.
  static bool gives_pools(const configs::RunConfig& config) {
    const configs::PoolOptions& pools = config.execution.pools;
    return pools.weights || pools.state || pools.gradients;
  }
  // Error(config) for pools that are too small.
  void check_pools(const std::vector<Change>& changes, const PlannedRun& run) const {
    const std::vector<std::string> planned = assignments(with_planned_pools(changes, run));
    check_plan(planned == assignments(changes) ? run.plan.plan : replan_(planned).plan.plan);
  }

  static std::vector<Change> with(std::vector<Change> changes, const Change& change) {
    changes.push_back(change);
    return changes;
  }

  // Less there, and nothing lost at a place that was seen to before.
  static bool helps(const Trial& next, const Trial& before, const std::string& place) {
    for (const std::string earlier : kPlaces) {
      if (earlier == place) break;
      if (!fits(next.run, earlier) && need(next.run, earlier) > need(before.run, earlier)) return false;
    }
    return need(next.run, place) < need(before.run, place);
  }

  const Replan& replan_;
};

std::string needs_text(const PlannedRun& run) {
  std::string text;
  for (const char* place : kPlaces)
    if (!run.fits(place))
      text += fmt::format("{}{} needs {} and has {}", text.empty() ? "" : ", ", place, base::format_bytes(run.need(place)),
                          base::format_bytes(run.have(place)));
  return text;
}

// What is not a setting: a larger drive.
std::string with_drive(const Trial& trial) {
  std::string text = changes_text(trial.changes);
  if (!fits(trial.run, "disk"))
    text += fmt::format("{}storage.paths with {} free", text.empty() ? "" : ", ", base::format_bytes(need(trial.run, "disk")));
  return text;
}

// With another batch, and as many of `changes` as it takes; empty: none fits.
std::string another_batch(const Search& search, const PlannedRun& run, const std::vector<Change>& changes) {
  for (const Change& other : other_changes(run.config)) {
    std::optional<Trial> trial = search.plan({other});
    if (!trial) continue;
    trial = search.relieve(std::move(*trial), changes);
    if (fits_memory(trial->run)) return with_drive(search.fewest(std::move(*trial), 1));
  }
  return "";
}

}  // namespace

std::string fit_advice(const PlannedRun& run, const Replan& replan) {
  if (run.fits()) return "";
  const Search search(replan);
  std::optional<Trial> given = search.plan({});
  if (!given) return needs_text(run);  // cannot be: it has been planned
  Trial best = search.relieve(std::move(*given), harmless_changes(run));
  if (fits_memory(best.run)) return fmt::format("{}: {} would fit", needs_text(run), with_drive(search.fewest(std::move(best), 0)));
  const std::vector<Change> helping = best.changes;
  std::vector<std::string> ways;
  Trial larger = search.enlarge(std::move(best));
  if (fits_memory(larger.run)) ways.push_back(with_drive(search.fewest(std::move(larger), 0)));
  if (const std::string other = another_batch(search, run, helping); !other.empty()) ways.push_back(other);
  if (ways.empty()) return needs_text(run) + ": no setting would fit";
  return fmt::format("{}: {} would fit", needs_text(run), fmt::join(ways, " would fit; or "));
}

}  // namespace sluice::apps
