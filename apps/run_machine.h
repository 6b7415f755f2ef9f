// Which machine a run is predicted for before it starts.
#pragma once
#include <optional>

#include "apps/planning.h"
#include "apps/rank_session.h"

namespace sluice::apps {

// A rank's share of the machine that is named, or of this one: as it was measured before, or measured now, for a few seconds, when that is
// asked for, a setting is "auto", or the run is long enough to be worth it. None: nothing is predicted, and a line says why and what to do.
// The config's open values are chosen. Errors: config, disk.
std::optional<offload::Machine> run_machine(const MachineOptions& options, const configs::RunConfig& config, const engine::HfConfig& model,
                                            const RankSession& ranks);

}  // namespace sluice::apps
