// The learning rate of each step, by DeepSpeed's formulas.
#pragma once
#include <cstdint>

#include "configs/run_config.h"

namespace sluice::configs {

// `step`: steps completed before this one (the first step has 0); DeepSpeed's last_batch_iteration.
// (DeepSpeed itself advances its scheduler after the optimizer, so that each rate is applied one step later
// there and its first two steps share the first rate.) base_lr: optimizer.params.lr. Past the end of a
// schedule its last value holds. Pure. WarmupDecayLR and WarmupCosineLR need total_num_steps (Error(bug)).
double lr_at(const RunConfig::Scheduler& scheduler, double base_lr, uint64_t step);

}  // namespace sluice::configs
