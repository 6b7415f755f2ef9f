// Which machine a plan is for: a named profile, or this one, measured once and remembered.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "configs/run_config.h"
#include "engine/hf_config.h"
#include "offload/machine.h"

namespace sluice::apps {

// Where measured profiles are kept: $XDG_CACHE_HOME/sluice, or ~/.cache/sluice.
std::filesystem::path profile_cache();

// `name`: a built-in machine or a file; empty: this machine with the config's device, which is chosen. That is measured in a few seconds the
// first time (a log line says so) and again when processor, cores, GPU, its driver, disk or the model's shapes change, or when asked to
// (`again`); memory sizes are always those of now. Machine::known says how old the profile is, a warning that the machine was busy. Errors:
// config (of a GPU that cannot be used, too), disk, device_memory.
offload::Machine choose_machine(const std::string& name, const configs::RunConfig& config,
                                const engine::HfConfig& model, bool again = false);

// This machine's profile when it has been measured already; memory sizes are those of now. Never measures.
std::optional<offload::Machine> known_machine(const configs::RunConfig& config, const engine::HfConfig& model);

// This machine with the memory that the config leaves to "auto" now.
offload::Machine with_memory(offload::Machine machine, const configs::RunConfig& config);

// One of so many ranks' part of a machine: each has a device and its links for itself; drives, memory, optimizer and cores are shared.
offload::Machine shared_by(offload::Machine machine, uint64_t ranks);

// machine.links and machine.compute over the machine's own rates. Reads and writes together, and copies both ways, get faster with the
// faster of the two, and never more than their sum.
offload::Machine with_emulated_rates(offload::Machine machine, const configs::MachineOptions& options);

}  // namespace sluice::apps
