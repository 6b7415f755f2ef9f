// The trainer of a run, or what to change so that there can be one.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "engine/trainer.h"

namespace sluice::apps {

// Reads the run's config again with "key=value" settings over what was given; what it leaves open is chosen.
using Reread = std::function<configs::RunConfig(const std::vector<std::string>& set)>;

// Of budgets that are too small the Error(device_memory) or (host_memory) says what would fit, as `sluice plan` does. reread empty: it does
// not (another rank does). Other errors are the trainer's.
std::unique_ptr<engine::Trainer> make_trainer(const engine::TrainerOptions& options, const engine::TrainerEvents& events, const Reread& reread);

}  // namespace sluice::apps
