// Machine profiles: a JSON file that says how fast a machine is, and the built-in assumed ones.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "configs/json_text.h"
#include "offload/machine.h"

namespace sluice::configs {

// {"name": "my box", "disk": {"read": "6.5GB/s", ...}, ...}; machine_json() of a built-in one shows all keys.
// A rate that is left out is unknown. Strict: Error(config) with line, the nearest known key, and what is
// allowed.
offload::Machine parse_machine(std::string_view text, const std::string& where);
offload::Machine read_machine(const std::filesystem::path& file);  // Error(config) when it cannot be read

Json machine_json(const offload::Machine& machine);
// Atomic: a reader sees the old or the new text. Error(disk).
void write_machine(const offload::Machine& machine, const std::filesystem::path& file);

// Assumed, from data sheets and published measurements; disks are one consumer NVMe drive at its sustained
// rates.
std::span<const offload::Machine> builtin_machines();

// A built-in name, or else a file. Error(config) with the built-in names when it is neither.
offload::Machine find_machine(const std::string& name_or_file);

}  // namespace sluice::configs
