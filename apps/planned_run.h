// A config, planned: memory, a simulated step, and what follows for the whole run.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/goals.h"
#include "configs/run_config.h"
#include "engine/run_plan.h"
#include "engine/trainer.h"

namespace sluice::apps {

struct PlannedRun {
  configs::RunConfig config;  // resolved
  std::string model;          // path, or name of the sizes
  offload::Machine machine;
  engine::RunPlan plan;
  engine::MemoryReport memory;

  // Has a step been simulated? Else no time is known: nothing but memory was asked for, or the disk's rates are not known.
  bool timed() const { return plan.simulation.periods > 0; }

  // place: "gpu", "host" or "disk". have 0: unknown, which anything fits.
  uint64_t need(std::string_view place) const { return engine::total(memory.rows, std::string(place)); }
  uint64_t have(std::string_view place) const;
  bool fits(std::string_view place) const;
  bool fits() const;
  bool fits_memory() const { return fits("gpu") && fits("host"); }
  double tokens_per_step() const;
  double tokens_per_second() const { return tokens_per_step() / plan.simulation.step_seconds; }
  uint64_t disk_read() const;  // bytes per step
  uint64_t disk_written() const;
  double written_per_day() const;
  std::optional<double> days_of_drive() const;  // none: storage.tbw is not given, or nothing is written
  // Tokens per step from which the device, and nothing else, is the limit; none: it cannot be, or always is.
  std::optional<double> device_limit_tokens() const;
  // Share of the time of collectives in which the device computes; none: one rank.
  std::optional<double> hidden_communication() const;
  // Reads the model, writes the first slot, and runs a first step.
  double first_step_seconds() const;

  std::optional<double> epoch_hours, run_hours;  // none: data.train, or the length of the run, is not known
  std::optional<double> steps;
  std::vector<Goal> goals;
};

struct PlanRequest {
  std::string machine;  // name or file; empty: this one
  bool spans = false;
  std::optional<double> guess_limit;  // engine::TrainerOptions: plans to fall back to share the buffers
  bool memory_only = false;           // nothing is simulated
};

// The model of the config: of its folder, or of its sizes. Error(config), Error(model).
engine::HfConfig model_of(const configs::RunConfig& config);

// The config was read for planning. `machine` without the config's own links and rates.
PlannedRun plan_config(configs::RunConfig config, const engine::HfConfig& model,
                       const offload::Machine& machine, const PlanRequest& request);

// Tiers and threads are chosen.
engine::RunPlanOptions run_plan_options(const configs::RunConfig& config, const engine::HfConfig& model,
                                        const offload::Machine& machine);

}  // namespace sluice::apps
