#include "apps/schedule_search.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "apps/planned_run.h"
#include "apps/training_options.h"
#include "base/error.h"
#include "base/units.h"

namespace sluice::apps {
namespace {

constexpr uint32_t kTiles = 800;  // of a simulation
constexpr uint32_t kStateTiles = 32;  // of the plan builder's default
constexpr uint32_t kLeastWeights = 2;
constexpr uint32_t kLeastState = 4;   // fewer stop read, Adam and write from overlapping
constexpr double kMargin = 0.05;      // of estimated rows
constexpr double kGpuMargin = 0.5;    // the estimate is of the emulated device's operations; a GPU's have more temporaries in fp32

uint64_t have(const Budgets& budgets, const std::string& place) {
  return place == "gpu" ? budgets.gpu : budgets.host;
}

}  // namespace

ScheduleSearch::ScheduleSearch(const configs::RunConfig& config, const engine::HfConfig& model, const offload::Machine& machine,
                               const Budgets& budgets)
    : model_(model),
      machine_(machine),
      budgets_(budgets),
      parameter_bytes_(offload::parameter_bytes(config.schema())),
      gpu_margin_(on_gpu(config, machine) ? kGpuMargin : kMargin) {
  const offload::ModelDesc blocks = engine::describe(model, model_source(config));
  layers_ = static_cast<uint32_t>(blocks.blocks.size() - 2);
  for (const offload::BlockDesc& block : blocks.blocks)
    for (const offload::TensorDesc& tensor : block.tensors) {
      if (!tensor.trainable) continue;
      parameters_ += tensor.count();
      if (block.kind == offload::BlockKind::embedding) embedding_ += tensor.count();
    }
}

std::optional<engine::RunPlan> ScheduleSearch::plan(const configs::RunConfig& config, bool memory_only) const {
  engine::RunPlanOptions options = run_plan_options(config, model_, machine_);
  options.memory_only = memory_only;
  options.most_tiles = kTiles;
  options.trainer.guess_limit = 1;  // with the plans to fall back to, where a placement guesses
  try {
    // A pool of so many tiles is a smaller one of larger tiles; its memory is that of the former.
    if (const uint64_t larger = scale(config); larger > 1 && !memory_only) {
      offload::PoolSizes& pools = options.trainer.plan.pools;
      pools.state = std::max(kLeastState, static_cast<uint32_t>((pools.state == 0 ? kStateTiles : pools.state) / larger));
      if (pools.weights != 0) pools.weights = std::max(kLeastWeights, static_cast<uint32_t>(pools.weights / larger));
    }
    return engine::plan_run(options);
  } catch (const base::Error& error) {
    if (error.kind() == base::ErrorKind::bug) throw;
    return std::nullopt;
  }
}

std::optional<uint64_t> ScheduleSearch::spare(const engine::RunPlan& plan, const char* place) const {
  const uint64_t there = have(budgets_, place);
  if (there == 0) return UINT64_MAX;
  const double margin = std::string_view(place) == "gpu" ? gpu_margin_ : kMargin;
  uint64_t need = 0;
  for (const engine::MemoryRow& row : plan.memory)
    if (row.place == place && !row.beside) need += row.bytes + (row.estimated ? static_cast<uint64_t>(margin * static_cast<double>(row.bytes)) : 0);
  if (need > there) return std::nullopt;
  return there - need;
}

std::optional<double> ScheduleSearch::seconds(const configs::RunConfig& config) const {
  if (scale(config) > 1 && !fits(config)) return std::nullopt;
  const auto planned = plan(config, false);
  if (!planned || (scale(config) == 1 && !fits(*planned))) return std::nullopt;
  return planned->simulation.step_seconds;
}

bool ScheduleSearch::fits(const engine::RunPlan& plan) const { return spare(plan, "gpu") && spare(plan, "host"); }

uint64_t ScheduleSearch::scale(const configs::RunConfig& config) const {
  return std::max<uint64_t>(1, base::ceil_div(base::ceil_div(parameters_, config.storage.tile), kTiles));
}

bool ScheduleSearch::fits(const configs::RunConfig& config) const {
  const auto planned = plan(config, true);
  return planned && fits(*planned);
}

uint64_t ScheduleSearch::room(const configs::RunConfig& config, const char* place) const {
  const auto planned = plan(config, true);
  return planned ? spare(*planned, place).value_or(0) : 0;
}
}  // namespace sluice::apps
