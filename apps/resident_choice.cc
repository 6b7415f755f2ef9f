#include "apps/resident_choice.h"

#include <fmt/format.h>

#include "apps/schedule_search.h"
#include "base/units.h"
#include "configs/resolve.h"

namespace sluice::apps {

void choose_resident_blocks(configs::RunConfig* config, const engine::HfConfig& model, uint64_t gpu) {
  if (config->execution.resident_blocks) return;
  if (config->zero_optimization.offload_optimizer.device == offload::Tier::none)
    return configs::choose_resident_blocks(config, 0, "offload_optimizer \"none\" keeps all of them there");
  if (gpu == 0) return configs::choose_resident_blocks(config, 0, "how much memory the device has is not known");
  // The search for a schedule must find that it fits, so it is asked.
  offload::Machine machine;  // memory depends on nothing of it but that it is, or may be, a GPU's
  if (config->machine.device != configs::DeviceType::cpu) machine.device_memory_rate = 1;
  const ScheduleSearch search(*config, model, machine, {.gpu = gpu});
  configs::RunConfig trial = *config;
  const auto fits = [&](uint32_t blocks) {
    trial.execution.resident_blocks = blocks;
    return search.fits(trial);
  };
  const uint32_t all = search.layers() + 2;
  uint32_t most = fits(all) ? all : 0;  // with the last one the device slots go
  for (uint32_t above = all; above - most > 1;) {
    const uint32_t middle = most + (above - most) / 2;
    (fits(middle) ? most : above) = middle;
  }
  configs::choose_resident_blocks(config, most, fmt::format("of {} blocks, what {} of device memory hold", all, base::format_bytes(gpu)));
}

}  // namespace sluice::apps
