// The fastest settings for a config on a machine, as `sluice tune` finds them.
#pragma once
#include <optional>
#include <vector>

#include "apps/schedule_choice.h"

namespace sluice::apps {

struct TuneRequest {
  PlanRequest plan;
  bool tiers = false;                       // also where weights and state live; storage.durable stays
  bool batch = false;                       // also micro-batch and accumulation, which changes numbers
  std::optional<uint64_t> tokens_per_step;  // with batch; none: those of the config
};

struct Tuned {
  PlannedRun before;                    // as `train` would run the config
  PlannedRun after;                     // never slower than `before` where that fits; its config has every setting chosen
  std::vector<SettingChoice> settings;  // that `after` has otherwise than the config itself, in the order of choice; empty: `after` is `before`
  std::vector<SettingChoice> open;      // that the config leaves open: as chosen in `before`
};

// Nothing is loaded. Error(config).
Tuned tune(const configs::RunConfig& config, const engine::HfConfig& model, const offload::Machine& machine, const TuneRequest& request);

}  // namespace sluice::apps
