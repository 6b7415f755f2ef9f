// Tries a config with other settings: does it fit, and how long would a step take? Coarse, so that many can be tried.
#pragma once
#include <cstdint>
#include <optional>

#include "configs/run_config.h"
#include "engine/hf_config.h"
#include "engine/run_plan.h"
#include "offload/machine.h"

namespace sluice::apps {

// Bytes that a run may use. 0: unknown, which anything fits. (The disk's do not depend on what is searched.)
struct Budgets {
  uint64_t gpu = 0, host = 0;
};

// Of configs that differ in settings which change no numbers; their tiers and threads are chosen.
class ScheduleSearch {
 public:
  // machine: with the rates that the config emulates. Model and machine must outlive the object. Error(config) as describe().
  ScheduleSearch(const configs::RunConfig& config, const engine::HfConfig& model, const offload::Machine& machine, const Budgets& budgets);

  // Seconds of a step; none: it does not fit, or cannot be (a pool that is too small, a pair of tiers, ...).
  std::optional<double> seconds(const configs::RunConfig& config) const;
  // Without simulating it. Estimated rows count a twentieth more, those of a GPU half as much again, so that what fits here fits the run.
  bool fits(const configs::RunConfig& config) const;
  // Bytes of the place that are left; 0 when it does not fit, or cannot be.
  uint64_t room(const configs::RunConfig& config, const char* place) const;
  uint32_t layers() const { return layers_; }
  uint64_t parameters() const { return parameters_; }              // trainable
  uint64_t parameter_bytes() const { return parameter_bytes_; }    // weight and state of one
  uint64_t embedding_bytes() const { return embedding_ * parameter_bytes_; }  // of the first block
  const offload::Machine& machine() const { return machine_; }

 private:
  std::optional<engine::RunPlan> plan(const configs::RunConfig& config, bool memory_only) const;
  bool fits(const engine::RunPlan& plan) const;
  uint64_t scale(const configs::RunConfig& config) const;  // so many times as large are the tiles of a simulation
  std::optional<uint64_t> spare(const engine::RunPlan& plan, const char* place) const;

  const engine::HfConfig& model_;
  const offload::Machine& machine_;
  const Budgets budgets_;
  const uint64_t parameter_bytes_;
  const double gpu_margin_;  // of estimated rows of the device
  uint32_t layers_ = 0;
  uint64_t parameters_ = 0, embedding_ = 0;
};

}  // namespace sluice::apps
