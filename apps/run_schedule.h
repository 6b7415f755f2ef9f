// When a run stands still between two steps: for evaluations, and for commits of the state in memory.
#pragma once
#include <cstdint>

#include "configs/run_config.h"

namespace sluice::apps {

struct RunSchedule {
  uint64_t steps = 0;
  uint64_t eval_every = 0;      // steps; 0: no evaluations
  bool commits_memory = false;  // false: every step commits, or nothing does
  uint64_t commit_every = 0;    // steps; 0: at the end

  // From `step` on, its own not counted.
  uint64_t evaluations_after(uint64_t step) const;
  uint64_t commits_after(uint64_t step) const;
};

// Durable is resolved. No steps in the config: 0.
RunSchedule run_schedule(const configs::RunConfig& config);

}  // namespace sluice::apps
