#include "apps/run_machine.h"

#include <spdlog/spdlog.h>

#include "apps/machine_choice.h"
#include "apps/schedule_choice.h"
#include "apps/training_options.h"

namespace sluice::apps {
namespace {

using offload::Machine;

// The rates are the profile's, the memory is what there is here.
Machine named_machine(const std::string& name, const configs::RunConfig& config, const engine::HfConfig& model) {
  Machine machine = choose_machine(name, config, model);
  machine.gpu_bytes = device_memory(config);
  machine.host_bytes = host_memory(config);
  return machine;
}

std::optional<Machine> this_machine(bool again, const configs::RunConfig& config, const engine::HfConfig& model) {
  if (again) return choose_machine("", config, model, /*again=*/true);
  if (config.machine.device == configs::DeviceType::cuda) {
    spdlog::info("nothing is predicted: a GPU is not measured here. --machine FILE|NAME says how fast it is");
    return std::nullopt;
  }
  if (const auto known = known_machine(config, model)) return known;
  if (asks_for_choice(config)) return choose_machine("", config, model);
  return std::nullopt;
}

}  // namespace

std::optional<Machine> run_machine(const MachineOptions& options, const configs::RunConfig& config, const engine::HfConfig& model, const RankSession& ranks) {
  std::optional<Machine> machine;
  if (!options.machine.empty()) machine = named_machine(options.machine, config, model);
  if (ranks.several() && !config.machine.links.net && (!machine || machine->net <= 0)) {
    spdlog::info("nothing is predicted: how fast ranks exchange is not known. `sluice bench --nproc N --out FILE` measures it, for --machine FILE");
    return std::nullopt;
  }
  if (!machine) machine = this_machine(options.measure, config, model);
  if (machine) machine = shared_by(*machine, ranks.on_this_host());
  return machine;
}

}  // namespace sluice::apps
