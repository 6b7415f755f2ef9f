// A few training steps of a tiny model, for tests that compare runs.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "engine/state_reader.h"
#include "engine/trainer.h"
#include "tests/paths.h"

namespace sluice::engine {

// The gradient norms of the tiny models lie on both sides, so that guesses of one run come true and fail.
inline constexpr double kTinyClip = 1.55;

struct TinyRun {
  std::string model = "tied";
  offload::Tier weights = offload::Tier::none, state = offload::Tier::none;
  offload::Durable durable = offload::Durable::checkpoint;
  offload::Schema schema = offload::Schema::bf16;
  uint64_t tile = 65536;
  offload::PoolSizes pools;
  io::QueueKind queue = io::QueueKind::threads;
  int optimizer_threads = 1;
  uint32_t accumulation = 1, keep_weights = 0, keep_graphs = 0;
  offload::Placement placement = offload::Placement::none;
  double clip = 1.0;
  uint64_t pinned = 0;
  uint64_t shadow = 0;
  uint32_t resident_blocks = 0;
  bool host_boundaries = false;
  uint32_t world = 1, zero_stage = 3;  // ranks are threads
  uint32_t micro_batch = 2;
  std::vector<std::string> trainable{"*"};
  uint64_t steps = 5, eval_every = 0;
  uint64_t device_memory = 512 << 20;
  bool poison = true;
  gpu::DeviceKind device = gpu::DeviceKind::cpu;
  bool opaque = false;  // the device behaves as a GPU does: see gpu::EmulatedOptions
  std::function<void(TrainerOptions&)> adjust;  // last word on the options
  std::vector<uint64_t> stops;  // the run is opened again after each of these steps
  std::vector<uint32_t> worlds;  // ranks after each stop, with the same global batch; empty: the same
};

struct TinyResult {
  std::vector<double> losses, norms, clips, scales, next_scales;  // scales: of fp16, of each step and after it
  StateDigest digest;
  uint64_t device_peak = 0, device_held = 0, device_planned = 0, skipped = 0, guessed = 0, redone = 0;
  std::vector<double> eval_losses;
  std::vector<comm::CommStats> traffic;  // by rank, of all steps; several ranks
  std::vector<uint64_t> planned_comm;    // by rank: bytes received in a step
  std::vector<uint64_t> disk_read, planned_read;  // by rank: bytes, of all steps and the start; of a step
};

// Removed with everything in it.
struct TemporaryFolder {
  TemporaryFolder();
  ~TemporaryFolder();
  std::filesystem::path path;
};

TrainerOptions tiny_options(const TinyRun& run, const std::filesystem::path& run_dir);
// Of several ranks the first one's; all must have seen the same numbers.
TinyResult run_tiny(const TinyRun& run);
StateDigest digest_of(const TinyRun& run, const std::filesystem::path& run_dir);

}  // namespace sluice::engine
