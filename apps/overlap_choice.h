// execution.overlap "auto": what the simulator finds fastest.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "apps/schedule_search.h"

namespace sluice::apps {

struct OverlapChoice {
  offload::Placement placement = offload::Placement::forward;
  double seconds = 0;                 // of a step with it
  std::optional<double> guess_limit;  // of a placement that guesses: engine::TrainerOptions
  std::optional<uint64_t> shadow;     // memory.shadow, of a placement that needs it
  std::string reason;                 // "a step takes 2.10 s with none, 1.70 s with forward", for people
};

// The config fits. No bits depend on it, and no memory but for pools and shadows.
OverlapChoice choose_overlap(const configs::RunConfig& config, const ScheduleSearch& search);

}  // namespace sluice::apps
