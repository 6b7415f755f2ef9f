#include "apps/shadow_choice.h"

#include <fmt/format.h>

#include "apps/planned_run.h"
#include "base/units.h"
#include "configs/resolve.h"

namespace sluice::apps {

using offload::Placement;
using offload::Tier;

bool needs_shadows(const configs::RunConfig& config, Placement overlap) {
  const auto& zero = config.zero_optimization;
  return guesses(overlap) && config.storage.durable != offload::Durable::step && zero.offload_optimizer.device == Tier::cpu && zero.offload_param.device != Tier::nvme;
}

void choose_shadow(configs::RunConfig* config, const engine::HfConfig& model, uint64_t host) {
  if (config->memory.shadow || !config->execution.overlap || !needs_shadows(*config, *config->execution.overlap)) return;
  engine::RunPlanOptions options = run_plan_options(*config, model, {});
  options.memory_only = true;
  options.trainer.shadow = UINT64_MAX;
  const engine::RunPlan plan = engine::plan_run(options);
  uint64_t all = 0;
  for (const engine::MemoryRow& row : plan.memory)
    if (row.purpose == "shadows") all += row.bytes;
  const uint64_t rest = engine::total(plan.memory, "host") - all;
  const auto wanted = static_cast<uint64_t>(kShadowShare * static_cast<double>(all));
  const bool fits = host == 0 || rest + wanted <= host;
  const uint64_t room = fits ? wanted : host > rest ? host - rest : 0;
  configs::choose_shadow(config, room, fits ? fmt::format("a quarter of the {} that all tiles would take", base::format_bytes(all))
                                            : fmt::format("what {} of RAM have room for", base::format_bytes(host)));
}

}  // namespace sluice::apps
