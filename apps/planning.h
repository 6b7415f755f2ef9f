// What sluice plan and sluice tune share: options, config, machine, exit code.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/planned_run.h"

namespace sluice::apps {

struct MachineOptions : ConfigOptions {
  std::string machine;   // a profile; empty: this machine
  bool measure = false;  // this machine, again
};

struct PlanningOptions : MachineOptions {
  std::optional<uint64_t> world;  // ranks; none: one
  uint64_t nodes = 1;             // machines that they are on
};

// --machine and --measure.
void add_machine_options(CLI::App& command, MachineOptions& options, const std::string& without);

// CONFIG, --set, --machine, --measure, --world and --nodes.
void add_planning_options(CLI::App& command, PlanningOptions& options);

// `more`: assignments after those of --set. Threads are chosen, and for this machine the device. Error(config).
configs::RunConfig read_planned(const PlanningOptions& options, const std::vector<std::string>& more = {});

// A rank's share of it. Error(config), Error(disk).
offload::Machine planned_machine(const PlanningOptions& options, const configs::RunConfig& config, const engine::HfConfig& model);

// The exit code that a run with this config would end with, or that of a missed goal. Says what would fit when something does not.
// machine: the planned one.
int verdict(const PlannedRun& run, const PlanningOptions& options, const offload::Machine& machine, const engine::HfConfig& model);

}  // namespace sluice::apps
