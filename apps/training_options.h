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
// Everything that training needs must be resolved (tiers, steps, threads); for a plan, tiers are enough.
engine::TrainerOptions trainer_options(const configs::RunConfig& config);

// The device that it leaves open: the GPU where one can be used.
void choose_device(configs::RunConfig* config);
// Compute threads that the config leaves open: an even share of the cores for each of the processes on this machine.
void choose_threads(configs::RunConfig* config, uint64_t processes = 1);
// Tiers that it leaves open, by what fits into so many bytes.
void choose_tiers(configs::RunConfig* config, const offload::ModelDesc& model, uint64_t gpu, uint64_t host);
// Bytes of the device that a run on this machine may use; where that is "auto" a little less, since what is free changes.
uint64_t device_memory(const configs::RunConfig& config);
uint64_t host_memory(const configs::RunConfig& config);  // the same of RAM
// Fills device, tiers, number of steps and compute threads that the config leaves open, by what the model, the data and the machine are. processes: ranks that
// share this machine; each gets an even share, of memory that is "auto" too.
void choose_open_values(configs::RunConfig* config, uint64_t processes = 1);

}  // namespace sluice::apps
