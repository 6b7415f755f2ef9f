#include "configs/resolve.h"

#include <cmath>

#include "base/error.h"
#include "configs/keys.h"

namespace sluice::configs {
namespace {

using base::ErrorKind;
using offload::Durable;
using offload::Tier;

std::string value_of(const RunConfig& config, const std::string& key) {
  return show(find_key(key)->write(config));
}

template <class... Args>
[[noreturn]] void refuse(const RunConfig& config, const std::string& key, fmt::format_string<Args...> format,
                         Args&&... args) {
  base::fail(ErrorKind::config, "{}: {} = {}: {}", origin_of(config, key).text, key, value_of(config, key),
             fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void missing(const RunConfig& config, const std::string& key, fmt::format_string<Args...> format,
                          Args&&... args) {
  base::fail(ErrorKind::config, "{}: {} is missing: {}", config.name, key,
             fmt::format(format, std::forward<Args>(args)...));
}

void derive(RunConfig* config, const std::string& key, const std::string& reason) {
  config->origins[key] = {Origin::Kind::derived, "derived: " + reason};
}

bool was_set(const RunConfig& config, const std::string& key) {
  return config.origins.contains(key);
}

constexpr const char* kTotal = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "gradient_accumulation_steps";

// total = micro x accumulation x ranks.
void resolve_batch(RunConfig* config) {
  auto& total = config->train_batch_size;
  auto& micro = config->train_micro_batch_size_per_gpu;
  auto& accumulation = config->gradient_accumulation_steps;
  const uint64_t world = config->run.world;
  if (!total && !micro) return;
  if (!accumulation && !(total && micro)) {
    accumulation = 1;
    derive(config, kAccumulation, "no accumulation is asked for");
  }
  const std::string ranks = world == 1 ? "" : fmt::format(" x {} ranks", world);
  const auto divide = [&](uint64_t by, const char* key, const char* by_key) {
    if (*total % (by * world) != 0) refuse(*config, kTotal, "not a multiple of {} {}{}", by_key, by, ranks);
    derive(config, key, fmt::format("{} {} / {} {}{}", kTotal, *total, by_key, by, ranks));
    return *total / (by * world);
  };
  if (!total) {
    if (*micro > UINT32_MAX || *accumulation > UINT32_MAX) refuse(*config, kMicro, "too large");
    total = *micro * *accumulation * world;
    derive(config, kTotal, fmt::format("{} x {}{}", kMicro, kAccumulation, ranks));
  } else if (!micro) {
    micro = divide(*accumulation, kMicro, kAccumulation);
  } else if (!accumulation) {
    accumulation = divide(*micro, kAccumulation, kMicro);
  }
  if (*micro > UINT32_MAX || *accumulation > UINT32_MAX || *total != *micro * *accumulation * world)
    refuse(*config, kTotal, "not {} {} x {} {}{}; give two of the three", kMicro, *micro, kAccumulation, *accumulation, ranks);
}

void resolve_optimizer(RunConfig* config) {
  const SchedulerOptions& scheduler = config->scheduler;
  auto& optimizer = config->optimizer;
  if (!optimizer.lr && scheduler.warmup_max_lr && scheduler_uses(scheduler.type, "warmup_max_lr")) {
    optimizer.lr = scheduler.warmup_max_lr;
    derive(config, "optimizer.params.lr", "scheduler.params.warmup_max_lr");
  }
  if (optimizer.type == OptimizerType::adamw && !optimizer.adam_w_mode)
    refuse(*config, "optimizer.params.adam_w_mode",
           "AdamW decays apart from the gradient; for L2 decay choose optimizer.type \"Adam\"");
  for (const char* key : {"optimizer.params.eps", "optimizer.params.bias_correction", "optimizer.params.adam_w_mode"})
    if (optimizer.type == OptimizerType::lion && was_set(*config, key)) refuse(*config, key, "Lion has no such parameter; it has lr, betas and weight_decay");
}

void resolve_scheduler(RunConfig* config) {
  SchedulerOptions& scheduler = config->scheduler;
  const std::string section = "scheduler.params.";
  for (const Key& key : keys())
    if (key.path.starts_with(section) && was_set(*config, key.path) &&
        !scheduler_uses(scheduler.type, key.path.substr(section.size())))
      refuse(*config, key.path, "a scheduler of type {} has no such parameter",
             value_of(*config, "scheduler.type"));
  if (!scheduler_uses(scheduler.type, "total_num_steps")) return;
  if (!scheduler.total_num_steps && config->steps.value_or(0) > 0) {
    scheduler.total_num_steps = config->steps;
    derive(config, "scheduler.params.total_num_steps", "steps");
  }
  if (scheduler.total_num_steps && scheduler.warmup_num_steps >= *scheduler.total_num_steps)
    refuse(*config, "scheduler.params.warmup_num_steps",
           "the warm-up must end before the schedule does, at step {}", *scheduler.total_num_steps);
}

void resolve_precision(RunConfig* config) {
  const engine::LossScalerOptions& fp16 = config->fp16;
  if (fp16.enabled && config->bf16) {
    if (was_set(*config, "bf16.enabled"))
      refuse(*config, "fp16.enabled", "bf16.enabled is true too, and there is one compute type: set one of them to false");
    config->bf16 = false;
    derive(config, "bf16.enabled", "fp16.enabled");
  }
  const double initial = std::ldexp(1.0, static_cast<int>(fp16.initial_scale_power));
  if (fp16.enabled && fp16.dynamic() && fp16.min_loss_scale > initial)
    refuse(*config, "fp16.min_loss_scale", "a dynamic scale begins below it, at {} (fp16.initial_scale_power)", initial);
  if (config->communication_data_type == gpu::WireType::fp16 && !fp16.enabled)
    refuse(*config, "communication_data_type", "gradients in fp16 need a loss scale, which only fp16.enabled has; take bf16 or fp32");
  if (config->communication_data_type) return;
  config->communication_data_type = fp16.enabled ? gpu::WireType::fp16 : config->bf16 ? gpu::WireType::bf16 : gpu::WireType::fp32;
  derive(config, "communication_data_type", "the compute type");
}

constexpr const char* kWeights = "zero_optimization.offload_param.device";
constexpr const char* kState = "zero_optimization.offload_optimizer.device";

void resolve_tiers(RunConfig* config) {
  const ZeroOptions& zero = config->zero_optimization;
  const auto weights = zero.offload_param.device, state = zero.offload_optimizer.device;
  const bool several = config->run.world > 1, sharded_state = zero.stage == 1 || zero.stage == 2;
  if (zero.stage == 0 && weights == Tier::nvme)
    refuse(*config, kWeights, "stage 0 shards nothing, and a store on nvme holds each rank's shard; take \"cpu\" or \"none\", or zero_optimization.stage 3");
  if (sharded_state && (weights == Tier::nvme || (several && weights == Tier::cpu)))
    refuse(*config, kWeights, "stages 1 and 2 keep whole weights on the device{}; take \"none\", or zero_optimization.stage 3",
           several ? " of every rank" : ", or with one rank on cpu");
  if (several && zero.stage == 0 && state == Tier::nvme)
    refuse(*config, kState,
           "stage 0 shards nothing, and a store on nvme holds each rank's shard; take \"cpu\" or \"none\", or zero_optimization.stage 1 or higher");
  if (state == Tier::none && weights && weights != Tier::none)
    refuse(*config, kState,
           "the optimizer works where its state is, and the master weights stay with it: state on the device "
           "needs "
           "{} \"none\", not {}",
           kWeights, value_of(*config, kWeights));
}

void resolve_storage(RunConfig* config) {
  StorageOptions& storage = config->storage;
  const OffloadOptions& param = config->zero_optimization.offload_param;
  const OffloadOptions& optimizer = config->zero_optimization.offload_optimizer;
  if (config->run.dir.empty()) {
    config->run.dir = std::filesystem::path("runs") / std::filesystem::path(config->name).stem();
    derive(config, "run.dir", "runs/<config name>");
  }
  if (storage.paths.empty()) {
    const auto used = [](const OffloadOptions& tier) {
      return !tier.nvme_path.empty() && tier.device.value_or(Tier::nvme) == Tier::nvme;
    };
    if (used(param) && used(optimizer) && param.nvme_path != optimizer.nvme_path)
      refuse(*config, "zero_optimization.offload_optimizer.nvme_path",
             "differs from offload_param.nvme_path \"{}\"; weights and state of "
             "a run share one store: give equal paths, or storage.paths",
             param.nvme_path.string());
    const OffloadOptions* given = used(param) ? &param : used(optimizer) ? &optimizer : nullptr;
    storage.paths = {given ? given->nvme_path : config->run.dir / "store"};
    derive(config, "storage.paths", given ? "nvme_path" : "run.dir");
  }
  for (size_t i = 0; i < storage.paths.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (storage.paths[i] == storage.paths[j])
        refuse(*config, "storage.paths", "names {} twice; name each drive once", storage.paths[i].string());
  if (storage.drive_rates && storage.drive_rates->size() != storage.paths.size())
    refuse(*config, "storage.drive_rates", "has {} rate{} for {} in storage.paths; give one for each, or \"auto\"", storage.drive_rates->size(),
           storage.drive_rates->size() == 1 ? "" : "s", storage.paths.size() == 1 ? "one folder" : fmt::format("{} folders", storage.paths.size()));
  const bool resident = config->execution.resident_blocks != std::optional<uint32_t>(0);
  if (!storage.durable && optimizer.device) {
    storage.durable = optimizer.device == Tier::nvme && !resident ? Durable::step : Durable::checkpoint;
    derive(config, "storage.durable", resident ? "blocks live on the device" : fmt::format("the state is on {}", value_of(*config, kState)));
  }
  if (storage.durable == Durable::step && resident)
    refuse(*config, "execution.resident_blocks",
           "what lives on the device cannot be written out every step for now; set it to 0, or storage.durable to \"checkpoint\"");
  if (storage.durable == Durable::step && optimizer.device == Tier::none)
    refuse(*config, "storage.durable",
           "state on the device cannot be written out every step for now; take \"checkpoint\", or {} \"cpu\"",
           kState);
  if (config->checkpoint.every != 0 && storage.durable && *storage.durable != Durable::checkpoint)
    refuse(*config, "checkpoint.every",
           "goes with storage.durable \"checkpoint\"; kept checkpoints are not built yet, and \"step\" commits every step");
  if (storage.tile % 65536 != 0) refuse(*config, "storage.tile", "must be a multiple of 65536 parameters");
  if (config->aio.block_size % 4096 != 0)
    refuse(*config, "aio.block_size", "must be a multiple of 4096 bytes");
}

// "auto" that has one answer for now, and values that do not run yet.
void resolve_execution(RunConfig* config) {
  MachineOptions& machine = config->machine;
  ExecutionOptions& execution = config->execution;
  if (!config->run.deterministic && machine.device == DeviceType::cpu)
    refuse(*config, "run.deterministic", "the emulated device has no other kernels; leave it true");
  if (!execution.overlap) {
    execution.overlap = offload::Placement::forward;
    derive(config, "execution.overlap", "no guess, nothing to redo, and never slower than none");
  }
  if (!execution.boundaries) {
    execution.boundaries = Boundaries::gpu;
    derive(config, "execution.boundaries", "nothing has to move");
  }
  if (execution.resident_blocks.value_or(0) > 0 && config->zero_optimization.offload_optimizer.device == Tier::none)
    refuse(*config, "execution.resident_blocks", "{} \"none\" keeps every block on the device; leave it out", kState);
  if (machine.compute && !config->only_planned && machine.device == DeviceType::cuda)
    refuse(*config, "machine.compute", "an emulated rate is for the emulated device; set machine.device to \"cpu\"");
  if (machine.compute && config->run.eval_every > 0)
    refuse(*config, "machine.compute", "an emulated rate computes nothing, so there is nothing to evaluate; leave run.eval_every out");
}

void check_model(const RunConfig& config) {
  const ModelOptions& model = config.model;
  if (!model.path.empty() && !model.sizes.is_null())
    refuse(config, "model.sizes", "model.path = {} says what the model is already; give one of the two", model.path.string());
  if (!model.path.empty()) return;
  if (model.sizes.is_null()) missing(config, "model.path", "name the Hugging Face folder of the model");
  if (!config.only_planned) refuse(config, "model.sizes", "a model that is not on disk can only be planned (sluice plan); give model.path");
}

void check_goals(const RunConfig& config) {
  if (config.goals.max_cost && !config.goals.price_per_hour)
    missing(config, "goals.price_per_hour", "goals.max_cost is given, but not what an hour costs");
}

void check_length(const RunConfig& config) {
  // choose_steps computes steps from epochs: then both are known.
  const bool both_given =
      config.steps && config.epochs && origin_of(config, "steps").kind != Origin::Kind::chosen;
  if (both_given)
    refuse(config, "epochs", "steps = {} says how long the run is already; give one of the two",
           *config.steps);
  if (config.run.eval_every > 0 && config.data.eval.empty())
    refuse(config, "run.eval_every", "there is nothing to evaluate on: give data.eval");
}

void check_training(const RunConfig& config) {
  if (!config.optimizer.lr)
    missing(config, "optimizer.params.lr",
            "there is no default learning rate; 1e-5 to 5e-5 is usual for fine-tuning");
  if (!config.steps && !config.epochs) missing(config, "steps", "say how long to train, by steps or epochs");
  if (!config.train_micro_batch_size_per_gpu)
    missing(config, kMicro, "give any two of {}, {} and {}, or one of the first two", kTotal, kMicro,
            kAccumulation);
  if (config.data.train.empty())
    missing(config, "data.train", "name the token file that `sluice prepare` made");
}

}  // namespace

Origin origin_of(const RunConfig& config, const std::string& key) {
  const auto found = config.origins.find(key);
  return found == config.origins.end() ? Origin{} : found->second;
}

bool scheduler_uses(SchedulerType type, std::string_view parameter) {
  switch (type) {
    case SchedulerType::none:
      return false;
    case SchedulerType::warmup:
    case SchedulerType::warmup_decay:
      if (parameter == "total_num_steps") return type == SchedulerType::warmup_decay;
      return parameter == "warmup_num_steps" || parameter == "warmup_type" || parameter == "warmup_min_lr" ||
             parameter == "warmup_max_lr";
    case SchedulerType::warmup_cosine:
      return parameter == "warmup_num_steps" || parameter == "warmup_type" ||
             parameter == "total_num_steps" || parameter == "warmup_min_ratio" ||
             parameter == "cos_min_ratio";
  }
  return false;
}

void resolve(RunConfig* config, Purpose purpose) {
  config->only_planned = config->only_planned || purpose == Purpose::planning;
  resolve_batch(config);
  resolve_optimizer(config);
  resolve_scheduler(config);
  resolve_precision(config);
  resolve_tiers(config);
  resolve_storage(config);
  resolve_execution(config);
  check_length(*config);
  check_model(*config);
  check_goals(*config);
  if (purpose == Purpose::training) check_training(*config);
}

void choose_tiers(RunConfig* config, Tier weights, Tier state, const std::string& reason) {
  const Origin chosen{Origin::Kind::chosen, "chosen: " + reason};
  const auto choose = [&](std::optional<Tier>& device, Tier tier, const char* key) {
    if (device) return;
    device = tier;
    config->origins[key] = chosen;
  };
  choose(config->zero_optimization.offload_param.device, weights, kWeights);
  choose(config->zero_optimization.offload_optimizer.device, state, kState);
  // The resolved config must be one that can be read again, and with state "none" every block is on the device.
  if (auto& blocks = config->execution.resident_blocks; blocks.value_or(0) > 0 && config->zero_optimization.offload_optimizer.device == Tier::none) {
    blocks = 0;
    config->origins["execution.resident_blocks"] = {Origin::Kind::chosen, "chosen: the device holds every block"};
  }
  resolve(config, Purpose::reading);
}

void choose_steps(RunConfig* config, uint64_t steps, const std::string& reason) {
  if (!config->steps) {
    config->steps = steps;
    config->origins["steps"] = {Origin::Kind::chosen, "chosen: " + reason};
  }
  resolve(config, Purpose::reading);
}

void choose_device(RunConfig* config, DeviceType device, const std::string& reason) {
  if (config->machine.device) return;
  config->machine.device = device;
  config->origins["machine.device"] = {Origin::Kind::chosen, "chosen: " + reason};
  resolve(config, Purpose::reading);
}

void choose_compute_threads(RunConfig* config, uint32_t threads, const std::string& reason) {
  if (config->machine.compute_threads) return;
  config->machine.compute_threads = threads;
  config->origins["machine.compute_threads"] = {Origin::Kind::chosen, "chosen: " + reason};
}

void choose_shadow(RunConfig* config, uint64_t bytes, const std::string& reason) {
  if (config->memory.shadow) return;
  config->memory.shadow = bytes;
  config->origins["memory.shadow"] = {Origin::Kind::chosen, "chosen: " + reason};
}

void choose_resident_blocks(RunConfig* config, uint32_t blocks, const std::string& reason) {
  if (config->execution.resident_blocks) return;
  config->execution.resident_blocks = blocks;
  config->origins["execution.resident_blocks"] = {Origin::Kind::chosen, "chosen: " + reason};
}

}  // namespace sluice::configs
