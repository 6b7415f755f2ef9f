// From a RunConfig to what the trainer takes.
#pragma once
#include "configs/run_config.h"
#include "engine/trainer.h"

namespace sluice::apps {

engine::ModelSource model_source(const configs::RunConfig& config);
engine::RuntimeOptions runtime_options(const configs::RunConfig& config);
// Folders of slot files; empty: the store's own folder.
std::vector<std::filesystem::path> storage_paths(const configs::RunConfig& config);
offload::PlanOptions plan_options(const configs::RunConfig& config);  // tiers must be resolved
// Everything that training needs must be resolved (tiers, steps, threads).
engine::TrainerOptions trainer_options(const configs::RunConfig& config);

// Fills tiers, number of steps and compute threads that the config leaves open, by what the model, the data and the machine are.
void choose_open_values(configs::RunConfig* config);

// Bytes of storage: all slots of all trainable extents, and the frozen base.
uint64_t disk_need(const offload::Layout& layout, offload::Durable durable);

}  // namespace sluice::apps
