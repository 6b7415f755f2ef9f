// What follows from the given values: derived ones, and the combinations that cannot be or do not run yet.
#pragma once
#include <string>

#include "configs/run_config.h"

namespace sluice::configs {

enum class Purpose {
  training,  // learning rate, length of the run, batch and training data must be known
  reading,   // evaluation, export, printing: model and numbers are enough
  planning,  // sluice plan: the model may be sizes alone, and what does not run yet is allowed (RunConfig::only_planned)
};

// Fills derived values, with their origin, and checks the whole. Error(config) with key, value and reason.
// Idempotent.
void resolve(RunConfig* config, Purpose purpose);

// Decisions that need the model, the data or the machine. Each sets the value with the origin "chosen:
// <reason>" when it is still open, derives what follows from it, and checks again; a value that was given is
// left alone.
void choose_tiers(RunConfig* config, offload::Tier weights, offload::Tier state, const std::string& reason);
void choose_steps(RunConfig* config, uint64_t steps, const std::string& reason);
void choose_device(RunConfig* config, DeviceType device, const std::string& reason);
void choose_compute_threads(RunConfig* config, uint32_t threads, const std::string& reason);
void choose_shadow(RunConfig* config, uint64_t bytes, const std::string& reason);
void choose_resident_blocks(RunConfig* config, uint32_t blocks, const std::string& reason);

// Origin of a key's value ("default" when nothing set it).
Origin origin_of(const RunConfig& config, const std::string& key);

// Whether a scheduler of this type reads the parameter ("warmup_min_lr").
bool scheduler_uses(SchedulerType type, std::string_view parameter);

}  // namespace sluice::configs
