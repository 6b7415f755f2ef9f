#include "apps/planning.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "apps/fit_advice.h"
#include "apps/machine_choice.h"
#include "apps/training_options.h"
#include "base/error.h"
#include "configs/machine_profile.h"
#include "configs/read_config.h"
#include "engine/comm/launch_environment.h"

namespace sluice::apps {

using base::ErrorKind;

void add_machine_options(CLI::App& command, MachineOptions& options, const std::string& without) {
  std::string names;
  for (const offload::Machine& machine : configs::builtin_machines()) names += (names.empty() ? "" : ", ") + machine.name;
  CLI::Option* named = command
                           .add_option("--machine", options.machine,
                                       "Profile of the machine, a JSON file (sluice bench --out) or a built-in one (" + names + "); without it " + without)
                           ->type_name("FILE|NAME");
  command.add_flag("--measure", options.measure, "Measure this machine again, for a few seconds, and keep that instead of what is known of it")
      ->excludes(named);
}

void add_planning_options(CLI::App& command, PlanningOptions& options) {
  add_config_options(command, options)->required();
  add_machine_options(command, options, "this machine is measured once, in a few seconds");
  add_world_option(command, options.world, "Plan for so many ranks, without starting them; figures are of rank 0, whose shard is the largest");
  command.add_option("--nodes", options.nodes, "Machines that the ranks are on; those of one share its drives, memory and cores")
      ->type_name("N")
      ->check(CLI::Range(uint64_t{1}, uint64_t{comm::kMostRanks}));
}

configs::RunConfig read_planned(const PlanningOptions& options, const std::vector<std::string>& more) {
  std::vector<std::string> set = options.set;
  set.insert(set.end(), more.begin(), more.end());
  configs::RunConfig config =
      configs::read_config(options.config, {.set = set, .purpose = configs::Purpose::planning, .world = options.world});
  if (config.run.world % options.nodes != 0)
    base::fail(ErrorKind::config, "--nodes {}: {} ranks cannot be shared out evenly", options.nodes, config.run.world);
  if (options.machine.empty()) choose_device(&config);  // as a run here would
  choose_threads(&config);
  return config;
}

offload::Machine planned_machine(const PlanningOptions& options, const configs::RunConfig& config, const engine::HfConfig& model) {
  return shared_by(choose_machine(options.machine, config, model, options.measure), config.run.world / options.nodes);
}

int verdict(const PlannedRun& run, const PlanningOptions& options, const offload::Machine& machine, const engine::HfConfig& model) {
  if (!run.fits()) {
    const auto replan = [&](const std::vector<std::string>& set) {
      const configs::RunConfig config = read_planned(options, set);
      const bool here = options.machine.empty();  // what is free here is shared out by the budgets that the config gives
      return plan_config(config, model, here ? shared_by(with_memory(machine, config), config.run.world / options.nodes) : machine,
                         {.machine = options.machine, .memory_only = true});
    };
    spdlog::error("it does not fit: {}", fit_advice(run, replan));
    return static_cast<int>(!run.fits("gpu")    ? ErrorKind::device_memory
                            : !run.fits("host") ? ErrorKind::host_memory
                                                : ErrorKind::disk);
  }
  for (const Goal& goal : run.goals)
    if (goal.missed()) return static_cast<int>(ErrorKind::goal);
  return 0;
}

}  // namespace sluice::apps
