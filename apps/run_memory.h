// RUN/memory.json: what a run was to need of every memory, what there was, and what it came to.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/process_memory.h"
#include "engine/trainer.h"

namespace sluice::apps {

struct MemoryPeaks {  // bytes
  uint64_t gpu = 0, host = 0;    // charged to the budgets memory.gpu and memory.host
  base::ProcessMemory process;   // at the end; resident_peak: of the whole process
};

struct RunMemory {
  engine::MemoryReport planned;      // the table of the start
  std::optional<MemoryPeaks> peaks;  // none: the run has not ended (cleanly)

  uint64_t need(const std::string& place) const;  // bytes; what is beside the budget is not counted
};

// "exact": follows from the plan; "measured": counted by a run on the device; "estimated": by a formula that may be some percent off.
const char* how_known(const engine::MemoryRow& row);

// Error(disk).
void write_run_memory(const RunMemory& memory, const std::filesystem::path& file);
// None: there is no such file. Error(data) for another content.
std::optional<RunMemory> read_run_memory(const std::filesystem::path& file);

}  // namespace sluice::apps
