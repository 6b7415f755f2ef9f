// How many blocks stay on the device, where the config leaves it to the free memory.
#pragma once
#include "configs/run_config.h"
#include "engine/hf_config.h"

namespace sluice::apps {

// execution.resident_blocks "auto": as many as `gpu` bytes of device memory hold beside the rest of the run, by its plan. Tiers and threads are
// chosen. gpu 0: not known.
void choose_resident_blocks(configs::RunConfig* config, const engine::HfConfig& model, uint64_t gpu);

}  // namespace sluice::apps
