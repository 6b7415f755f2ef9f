// execution.overlap "auto": what the simulator finds fastest.
#pragma once
#include <optional>
#include <string>

#include "configs/run_config.h"
#include "engine/hf_config.h"
#include "offload/machine.h"

namespace sluice::apps {

struct OverlapChoice {
  offload::Placement placement = offload::Placement::forward;
  std::optional<double> guess_limit;  // of a placement that guesses: engine::TrainerOptions
  std::string reason;                 // "forward 2.10 s a step, spread 1.70 s", for people
};

// Tiers and threads are chosen. Neither bits nor memory depend on it, but for pools.
OverlapChoice choose_overlap(const configs::RunConfig& config, const engine::HfConfig& model, const offload::Machine& machine);

}  // namespace sluice::apps
