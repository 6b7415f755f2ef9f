// A planned run as text and as JSON.
#pragma once
#include <string>

#include <nlohmann/json.hpp>

#include "apps/planned_run.h"

namespace sluice::apps {

std::string machine_text(const offload::Machine& machine);  // name, and how its rates are known

// Memory table, step time and what binds it, busy shares, stalls, bytes, drive wear, length of the run,
// goals.
std::string plan_text(const PlannedRun& run);

// Fixed names: fits, step_seconds, tokens_per_second, bottleneck, memory.{gpu,host,disk}.{need,have},
// bytes_per_step.{disk_read,disk_write,h2d,d2h}. What is not known is null. Commits: of the state in memory; disk_write
// has its share of them.
nlohmann::ordered_json plan_json(const PlannedRun& run);

// The resource that has most to do: "disk", "compute", ...; "commit" where the time until commits are durable is the longest.
std::string bottleneck(const PlannedRun& run);

}  // namespace sluice::apps
