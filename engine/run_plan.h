// A run as it would be, without loading anything: what it needs of every memory, and how long a step takes.
// LibTorch-free.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "engine/hf_config.h"
#include "engine/run_shape.h"
#include "engine/trainer.h"
#include "offload/machine.h"
#include "offload/simulator.h"

namespace sluice::engine {

struct RunPlanOptions {
  HfConfig config;
  TrainerOptions trainer;  // of a real run; model.path, data and run folders are not looked at
  offload::Machine machine;
  uint32_t compute_threads = 1;
  bool gpu = false;          // a real one, whose context takes memory beside the budget
  bool spans = false;        // keep the simulated operations for a trace
  bool memory_only = false;  // no simulation
  bool evaluates = false;    // simulate an evaluation, too
  // Larger plans are simulated with coarser tiles, so that any model is planned in a moment.
  uint32_t most_tiles = 6'000;
};

struct RunPlan {
  std::unique_ptr<offload::Layout> layout;     // of the run
  std::unique_ptr<offload::Layout> simulated;  // with coarser tiles; null: the run's own
  offload::Plan plan;                          // of the step, over the simulated layout
  std::vector<MemoryRow> memory;               // gpu, host and disk
  offload::Simulation simulation;              // empty with memory_only
  std::optional<offload::Simulation> evaluation;  // a period is as many rows as a step's, forward only
  uint64_t commit_bytes = 0;                   // that a commit of the state in memory writes
  uint64_t load_bytes = 0;                     // that are read into memory before the first step

  const offload::Layout& planned_layout() const { return simulated ? *simulated : *layout; }
};

// Error(config) for a plan that cannot be, naming what is too small.
RunPlan plan_run(const RunPlanOptions& options);

}  // namespace sluice::engine
