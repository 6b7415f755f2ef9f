// How much RAM keeps old copies of what is updated on a guess, where the config leaves it to the free memory.
#pragma once
#include "configs/run_config.h"
#include "engine/hf_config.h"

namespace sluice::apps {

// Without durable "step" a tile may be updated on a guess only where a copy of its old state is kept.
bool needs_shadows(const configs::RunConfig& config, offload::Placement overlap);

// Of all trained weights and state, where a simulation does not say better: an update that saves the old state takes twice the time.
inline constexpr double kShadowShare = 0.25;

// memory.shadow "auto": this share, or what `host` bytes of RAM leave beside the rest of the run, by its plan; stays open where the overlap makes
// no guess or needs none. Tiers, threads and overlap are chosen. host 0: not known, and taken as enough.
void choose_shadow(configs::RunConfig* config, const engine::HfConfig& model, uint64_t host);

}  // namespace sluice::apps
