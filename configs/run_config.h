// One training run, as typed options. Plain data: read_config.h fills it, resolve.h derives and checks it,
// explain.h prints it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/json_text.h"
#include "engine/loss_scaler.h"
#include "gpu/device.h"
#include "offload/layout.h"
#include "offload/plan.h"
#include "offload/store.h"

namespace sluice::configs {

enum class OptimizerType { adamw, adam, lion };
enum class SchedulerType { none, warmup, warmup_decay, warmup_cosine };
enum class WarmupCurve { linear, log };
enum class OnNonFinite { stop, skip };
enum class OnDrift { warn, stop };
enum class DeviceType { cpu, cuda };
enum class Boundaries { gpu, host };

inline constexpr uint32_t kAllLayers = UINT32_MAX;  // "all" for keep_weights and keep_graphs

struct OptimizerOptions {
  OptimizerType type = OptimizerType::adamw;
  std::optional<double> lr;  // always set in a training config
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool bias_correction = true;
  bool adam_w_mode =
      true;  // decoupled decay, as DeepSpeed's "Adam" has it; false: decay joins the gradient (L2)
  std::vector<std::string> no_decay{"*norm*", "*ln_*",
                                    "*.bias"};  // globs on Hugging Face names: norms and biases
};

// Parameters by DeepSpeed's names. What a type does not use keeps its default and may not be given.
struct SchedulerOptions {
  SchedulerType type = SchedulerType::none;
  double warmup_min_lr = 0;             // WarmupLR, WarmupDecayLR
  std::optional<double> warmup_max_lr;  // WarmupLR, WarmupDecayLR; unset: the optimizer's lr
  uint64_t warmup_num_steps = 1000;
  WarmupCurve warmup_type = WarmupCurve::linear;
  std::optional<uint64_t>
      total_num_steps;          // WarmupDecayLR, WarmupCosineLR; unset: until the number of steps is known
  double warmup_min_ratio = 0;  // WarmupCosineLR
  double cos_min_ratio = 1e-4;  // WarmupCosineLR
};

struct OffloadOptions {
  std::optional<offload::Tier> device;  // unset ("auto"): choose_tiers decides by what fits
  std::filesystem::path nvme_path;      // empty: not given
};

struct ZeroOptions {
  uint64_t stage = 3;
  uint64_t reduce_bucket_size = 4 << 20;  // elements that a reduction over ranks works on at a time
  OffloadOptions offload_param, offload_optimizer;
};

struct AioOptions {
  uint64_t block_size = 4 << 20;  // bytes
  uint32_t queue_depth = 8;
};

struct ModelOptions {
  std::filesystem::path path;
  std::string family = "llama";  // of sizes
  Json sizes;                    // of a model that is not on disk (planning only): a known name or config.json's keys; null: not given
  std::vector<std::string> trainable{"*"};  // globs on Hugging Face names
  uint64_t loss_chunk = 512;                // tokens
};

struct DataOptions {
  std::filesystem::path train, eval;  // token files; eval empty: no evaluation
  uint64_t sequence_length = 1024;    // tokens
};

struct RunOptions {
  std::filesystem::path dir;
  uint64_t world = 1;  // ranks
  uint64_t seed = 0;
  uint64_t eval_every = 0;  // steps; 0: never during the run
  uint64_t log_every = 1;   // steps
  bool deterministic = true;
  OnNonFinite on_nonfinite = OnNonFinite::stop;
  OnDrift on_drift = OnDrift::warn;
  double grace = 30;  // seconds that a stop signal may take to finish and commit the step
};

struct StorageOptions {
  std::vector<std::filesystem::path> paths;  // always resolved
  std::optional<std::vector<double>> drive_rates;  // one a path, bytes per second; unset: measured when the store is made
  std::optional<offload::Durable> durable;   // set as soon as the tiers are
  uint64_t tile = 2 << 20;                   // elements
  bool verify = false;                       // verify the whole published slot on every open
  std::optional<uint64_t> tbw;               // bytes that the drives together are rated to be written
};

struct CheckpointOptions {
  uint64_t every = 0;  // steps between commits with durable checkpoint; 0: only at the end and at a stop
};

struct MemoryOptions {  // bytes; unset: "auto", what is free less a margin
  std::optional<uint64_t> gpu, host;
  std::optional<uint64_t> pinned;  // state kept in RAM; 0: none; unset: none, or what the simulator finds best
  std::optional<uint64_t> shadow;  // old copies of state that is updated on a guess; unset: a quarter of all, or what the simulator finds best
};

struct LinkOptions {  // emulated, bytes per second; unset: the machine's own
  std::optional<double> h2d, d2h, disk_read, disk_write, net;
  std::optional<double> net_latency;  // seconds
};

struct MachineOptions {
  std::optional<DeviceType> device;         // unset: choose_device decides
  std::optional<uint32_t> compute_threads;  // unset: choose_compute_threads decides
  LinkOptions links;
  std::optional<double> compute;            // FLOP per second; timing only
};

struct PoolOptions {  // tiles; unset: default of the plan builder, capped at what the model has; state: or what is best
  std::optional<uint32_t> weights, state, gradients;
};

struct ExecutionOptions {
  std::optional<offload::Placement> overlap;  // always resolved
  std::optional<uint32_t> device_slots;       // weight slots of layers; unset: 2, or what the simulator finds best
  PoolOptions pools;
  std::optional<uint32_t> optimizer_threads;  // unset: all this process may use
  std::optional<uint32_t> keep_weights;  // last layers; kAllLayers: all; unset: 0, or what the simulator finds best
  std::optional<uint32_t> keep_graphs;
  std::optional<Boundaries> boundaries;  // always resolved
  std::optional<uint32_t> resident_blocks = 0;  // first blocks; unset: choose_resident_blocks decides
};

struct GoalOptions {  // what a run should keep to; sluice plan says whether it will
  std::optional<double> max_hours, max_cost, price_per_hour, step_seconds, eval_loss;
  std::optional<uint64_t> disk_written;  // bytes, by the whole run
};

// Where a value comes from, for people.
struct Origin {
  enum class Kind { fallback, deepspeed, file, command_line, derived, chosen };
  Kind kind = Kind::fallback;
  std::string text = "default";  // "config.json:12", "--set", "derived: ...", "chosen: ..."
};

struct RunConfig {
  using Optimizer = OptimizerOptions;
  using Scheduler = SchedulerOptions;

  std::string name;  // the config file, as it was given

  // train_batch_size = micro-batch x accumulation x run.world
  std::optional<uint64_t> train_batch_size, train_micro_batch_size_per_gpu, gradient_accumulation_steps;
  OptimizerOptions optimizer;
  SchedulerOptions scheduler;
  bool bf16 = true;  // resolved to false with fp16; neither: fp32
  engine::LossScalerOptions fp16;
  double gradient_clipping = 1.0;                        // 0: off
  std::optional<gpu::WireType> communication_data_type;  // always resolved
  ZeroOptions zero_optimization;
  AioOptions aio;
  ModelOptions model;
  DataOptions data;
  std::optional<uint64_t> steps;  // steps or epochs; choose_steps sets steps from epochs
  std::optional<double> epochs;
  RunOptions run;
  StorageOptions storage;
  CheckpointOptions checkpoint;
  MemoryOptions memory;
  MachineOptions machine;
  ExecutionOptions execution;
  GoalOptions goals;

  bool only_planned = false;  // by `sluice plan`: what does not run yet is allowed

  std::map<std::string, Origin> origins;  // by key; a key that is absent here has its default
  std::map<std::string, std::string> reasons;  // by key: why the file has this value, where it says so ("reasons"); without effect
  std::vector<std::string> notes;         // one line each: imported keys without effect, and why

  offload::Schema schema() const {
    using offload::NumberType;
    const NumberType numbers = fp16.enabled ? NumberType::fp16 : bf16 ? NumberType::bf16 : NumberType::fp32;
    return offload::schema_of(numbers, /*variance=*/optimizer.type != OptimizerType::lion);
  }
  uint64_t micro_batch() const { return train_micro_batch_size_per_gpu.value_or(1); }
  uint64_t accumulation() const { return gradient_accumulation_steps.value_or(1); }
};

}  // namespace sluice::configs
