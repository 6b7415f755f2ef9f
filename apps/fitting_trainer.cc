#include "apps/fitting_trainer.h"

#include "apps/fit_advice.h"
#include "apps/machine_choice.h"
#include "apps/training_options.h"
#include "base/error.h"

namespace sluice::apps {
namespace {

using base::ErrorKind;

// As far as memory goes.
offload::Machine this_machine(const configs::RunConfig& config) {
  offload::Machine machine;
  if (config.machine.device == configs::DeviceType::cuda) machine.device_memory_rate = 1;
  return with_memory(machine, config);
}

// Empty: by its plan the run would fit.
std::string advice(const Reread& reread) try {
  const auto replan = [&](const std::vector<std::string>& set) {
    const configs::RunConfig config = reread(set);
    return plan_config(config, model_of(config), this_machine(config), {.memory_only = true});
  };
  return fit_advice(replan({}), replan);
} catch (const base::Error&) {  // the run's own error is what counts
  return "";
}

}  // namespace

std::unique_ptr<engine::Trainer> make_trainer(const engine::TrainerOptions& options, const engine::TrainerEvents& events, const Reread& reread) {
  try {
    return std::make_unique<engine::Trainer>(options, events);
  } catch (const base::Error& error) {
    const bool memory = error.kind() == ErrorKind::device_memory || error.kind() == ErrorKind::host_memory;
    const std::string text = memory && reread ? advice(reread) : "";
    if (text.empty()) throw;
    base::fail(error.kind(), "{}\nBy its plan {}", error.what(), text);
  }
}

}  // namespace sluice::apps
