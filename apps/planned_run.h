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

// Seconds until a step is done, as the disk's rates have it. A resumed run begins with load_memory; opening a store, and starting the
// program, are not known.
struct FirstStep {
  double read_model = 0, make_store = 0;
  double load_memory = 0;  // what has its home in RAM or on the device, from the store
  double step = 0;         // with empty pools
  double resumed() const { return load_memory + step; }
  double fresh() const { return read_model + make_store + resumed(); }
};

struct PlannedRun {
  configs::RunConfig config;  // resolved
  std::string model;          // path, or name of the sizes
  offload::Machine machine;
  engine::RunPlan plan;        // of one rank
  engine::MemoryReport memory;
  uint64_t ranks_here = 1;     // that share a machine and its drives

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
  uint64_t disk_read() const;  // bytes per step, of a machine's drives: by all its ranks
  double disk_written() const;  // the same, commits of the state in memory spread over all steps
  double seconds_per_step() const;  // with evaluations and commits
  double written_per_day() const;
  std::optional<double> days_of_drive() const;  // none: storage.tbw is not given, or nothing is written
  // Tokens per step from which the device, and nothing else, is the limit; none: it always is. Infinity: it never is, as with every
  // token block inputs on the host take a link or DRAM longer than the device.
  std::optional<double> device_limit_tokens() const;
  // Steps that a crash loses at most, the one at work counted; none: the whole run, whose length is not known.
  std::optional<double> steps_at_risk() const;
  // Share of the time of collectives in which the device computes; none: one rank.
  std::optional<double> hidden_communication() const;
  FirstStep first_step() const;

  // Of a commit of the state in memory (bytes: by all ranks of a machine), and of an evaluation; how many of them there are for each step.
  Pauses pauses;
  double commits_per_step = 0, evaluations_per_step = 0;

  std::optional<double> epoch_hours, run_hours;  // none: data.train, or the length of the run, is not known
  std::optional<double> steps;
  std::vector<Goal> goals;
};

struct PlanRequest {
  std::string machine;  // name or file; empty: this one
  uint64_t nodes = 1;   // machines that the ranks are on
  bool spans = false;
  std::optional<double> guess_limit;  // engine::TrainerOptions: plans to fall back to share the buffers
  bool memory_only = false;           // nothing is simulated
};

// The model of the config: of its folder, or of its sizes. Error(config), Error(model).
engine::HfConfig model_of(const configs::RunConfig& config);

// The config was read for planning. `machine` without the config's own links and rates.
PlannedRun plan_config(configs::RunConfig config, const engine::HfConfig& model,
                       const offload::Machine& machine, const PlanRequest& request);

// Has the machine a real device, and does the config not ask for the emulated one?
bool on_gpu(const configs::RunConfig& config, const offload::Machine& machine);

// Tiers and threads are chosen.
engine::RunPlanOptions run_plan_options(const configs::RunConfig& config, const engine::HfConfig& model,
                                        const offload::Machine& machine);

}  // namespace sluice::apps
