// RUN/starts.jsonl: a line for each time a run was started: where it went on, what was lost, how fast the machine was found to be.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sluice::apps {

// Measured before the run (`sluice plan` or `bench` on this machine); 0: unknown.
struct Ceilings {
  double disk_read = 0, disk_write = 0, h2d = 0, d2h = 0;  // bytes per second
  double compute = 0;                                      // FLOP per second
};

struct RunStart {
  uint64_t step = 0;          // committed when it began
  uint64_t steps_lost = 0;    // reported before, but never committed: done again
  double open_seconds = 0;    // to create or open the store and load what lives in memory
  double flops_per_step = 0;  // of the model, nothing computed twice (engine/flops.h)
  std::string device;
  std::optional<Ceilings> ceilings;
};

// Error(disk).
void append_start(const RunStart& start, const std::filesystem::path& file);
// Empty: there is no such file. Error(data); the last line may be torn by a crash.
std::vector<RunStart> read_starts(const std::filesystem::path& file);

}  // namespace sluice::apps
