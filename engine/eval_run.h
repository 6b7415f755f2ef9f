// Evaluation on its own: of a model folder, or of a run's newest weights.
#pragma once
#include <filesystem>
#include <functional>
#include <vector>

#include "engine/eval_result.h"
#include "engine/model_source.h"
#include "engine/runtime.h"
#include "offload/plan_builder.h"

namespace sluice::engine {

struct EvalRunOptions {
  ModelSource model;
  RuntimeOptions runtime;
  std::filesystem::path tokens;
  uint32_t sequence = 0, micro_batch = 1, accumulation = 1;
  offload::PlanOptions plan;  // weights tier and pools
  // Of a run: its folder and where its slot files are. Empty: the weights of the model folder, through a temporary frozen base
  // (2 bytes a parameter) in `scratch`, which is gone afterwards even when the process is killed.
  std::filesystem::path run_dir;
  std::vector<std::filesystem::path> storage;
  std::filesystem::path scratch;
  std::function<void(const std::string& what, uint64_t done, uint64_t total)> progress;  // may be empty
};

// Errors: model, data, host_memory, device_memory, disk.
EvalResult evaluate(const EvalRunOptions& options);

}  // namespace sluice::engine
