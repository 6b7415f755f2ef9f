// What a step's line of metrics.jsonl says beside loss and time: how well each resource was used, and what it cost.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/process_memory.h"
#include "engine/trainer.h"

namespace sluice::apps {

struct LinkBytes {
  uint64_t disk_read = 0, disk_write = 0, h2d = 0, d2h = 0, net = 0;
};

LinkBytes link_bytes(const std::array<uint64_t, offload::kLanes>& by_lane);
LinkBytes link_bytes(const offload::Plan& plan);  // of one period

// Key of a cause in the section stall, whose "compute" is the whole.
inline const char* stall_name(offload::Lane lane) { return lane == offload::Lane::compute ? "itself" : offload::to_string(lane); }

// Share of the time in collectives during which the device computed: 1 when nothing waited for them. A step's collectives may all have ended
// before the line of the step before it was written, so the share is that of two lines.
class HiddenShare {
 public:
  // Of the step that has just been done, and the one before. None: there were no collectives.
  std::optional<double> add(const offload::ExecutorStats& stats);

 private:
  double seconds_ = 0, exposed_ = 0;  // of the step before
};

struct StepFacts {
  double time = 0;                           // when the step ended, seconds since 1970
  std::optional<double> predicted;           // seconds of a step; none: no plan was made
  LinkBytes planned;                         // bytes of a step
  std::optional<double> hidden;              // share of the communication; none: one rank
  uint64_t ranks_here = 1;                   // that share this machine's drives
  double flops = 0;                          // of the model's step, by all ranks
  std::optional<double> compute_rate;        // FLOP per second that the ranks were measured to reach together
  engine::RunCounters before, now;           // at the end of the step before, and of this one
  gpu::MemoryStats device;
  base::ProcessMemory process;
};

// Sections phase, overlap, flops, bandwidth, bytes_over_plan, disk, memory; docs/design.md says what each figure is.
nlohmann::ordered_json facts_json(const engine::StepReport& step, const StepFacts& facts);

}  // namespace sluice::apps
