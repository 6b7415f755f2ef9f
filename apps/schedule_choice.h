// Settings that change no numbers, chosen by simulation: those that a config leaves open, and for `sluice tune` all of them.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/planned_run.h"
#include "apps/schedule_search.h"

namespace sluice::apps {

struct SettingChoice {
  std::string key;             // "execution.keep_graphs"
  configs::Json was, becomes;  // as a config has them; was "auto": it left this open
  double before = 0, after = 0;  // seconds of a step, coarsely simulated; before 0: the config did not fit
  std::string reason;
};

struct ScheduleChoice {
  configs::RunConfig config;            // with every setting chosen
  std::vector<SettingChoice> settings;  // that were open, or changed
  std::optional<double> guess_limit;    // of a placement that guesses: engine::TrainerOptions
};

enum class Choose { open, all };  // settings that the config leaves open, or also those it gives

// One setting after the other, where RAM and device memory buy most first (overlap, kept graphs, kept weights, device slots, the
// pinned set, buffers for state and weights), the rest as it is; a setting changes when a step gets at least half a percent faster, or when the config
// would not fit otherwise, and takes no more memory than that needs. Deterministic. Tiers and threads are chosen.
ScheduleChoice choose_schedule(const configs::RunConfig& config, const engine::HfConfig& model, const offload::Machine& machine,
                               const Budgets& budgets, Choose which);

// Does the config leave anything open that choose_schedule() would choose?
bool has_open_settings(const configs::RunConfig& config);
// Does it ask for that: is one of them given as "auto"?
bool asks_for_choice(const configs::RunConfig& config);

// A config planned as `train` runs it on a measured machine: with what it leaves open chosen, unless the whole plan is slower for it.
struct OpenPlan {
  PlannedRun run;
  ScheduleChoice choice;  // choice.config is run.config; no settings where nothing was open
};
OpenPlan plan_open(const configs::RunConfig& config, const engine::HfConfig& model, const offload::Machine& machine,
                   const PlanRequest& request);

}  // namespace sluice::apps
