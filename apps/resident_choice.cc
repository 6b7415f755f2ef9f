#include "apps/resident_choice.h"

#include <fmt/format.h>

#include "apps/planned_run.h"
#include "base/units.h"
#include "configs/resolve.h"

namespace sluice::apps {
namespace {

// What the device must have: temporaries are estimated, and may be some percent more.
uint64_t need(const engine::RunPlan& plan) {
  uint64_t bytes = engine::total(plan.memory, "gpu");
  for (const auto& row : plan.memory)
    if (row.place == "gpu" && row.estimated && !row.beside) bytes += row.bytes / 25;
  return bytes;
}

}  // namespace

void choose_resident_blocks(configs::RunConfig* config, const engine::HfConfig& model, uint64_t gpu) {
  if (config->execution.resident_blocks) return;
  if (config->zero_optimization.offload_optimizer.device == offload::Tier::none)
    return configs::choose_resident_blocks(config, 0, "offload_optimizer \"none\" keeps all of them there");
  if (gpu == 0) return configs::choose_resident_blocks(config, 0, "how much memory the device has is not known");
  engine::RunPlanOptions options = run_plan_options(*config, model, {});
  options.memory_only = true;
  const auto fits = [&](uint32_t blocks) {
    options.trainer.plan.resident_blocks = blocks;
    return need(engine::plan_run(options)) <= gpu;
  };
  options.trainer.plan.resident_blocks = 0;
  const auto all = static_cast<uint32_t>(engine::plan_run(options).layout->blocks().size());
  uint32_t most = 0;
  for (uint32_t above = all + 1; above - most > 1;) {
    const uint32_t middle = most + (above - most) / 2;
    (fits(middle) ? most : above) = middle;
  }
  configs::choose_resident_blocks(config, most, fmt::format("of {} blocks, what {} of device memory hold", all, base::format_bytes(gpu)));
}

}  // namespace sluice::apps
