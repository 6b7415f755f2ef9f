// The memory of a run, for people: what `sluice plan` prints and `sluice train` starts with.
#pragma once
#include <cstdint>
#include <string>

#include "configs/run_config.h"
#include "engine/trainer.h"

namespace sluice::apps {

// Bytes that a store may take: the folders of storage.paths (or their nearest parents that exist) are filled as
// storage.drive_rates say, else evenly. Where run.dir has a run that goes on in its store as it is, the `slots` (bytes)
// are there already; what rewrites it needs them once more.
uint64_t disk_available(const configs::RunConfig& config, uint64_t slots);

// "134515008 parameters, 134515008 trainable; weights nvme, state nvme, overlap forward", how several ranks share the work, and the table: need
// by purpose, and have (0: unknown). Ends with what a crash costs, and what follows from settings that do not go together. Tiers, overlap and durable are
// resolved.
std::string memory_report(const configs::RunConfig& config, const offload::Layout& layout,
                          const engine::MemoryReport& memory);

// "durable: step. Every step is committed; a crash costs ..."
std::string crash_cost(const configs::RunConfig& config);

}  // namespace sluice::apps
