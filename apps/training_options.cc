#include "apps/training_options.h"

#include <cmath>

#include "base/arena.h"
#include "base/topology.h"
#include "base/units.h"
#include "configs/lr_schedule.h"
#include "configs/resolve.h"
#include "engine/packing.h"
#include "engine/token_file.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_report.h"
#include "io/drive_rates.h"

namespace sluice::apps {

using offload::Tier;

engine::ModelSource model_source(const configs::RunConfig& c) {
  engine::ModelSource source;
  source.path = c.model.path;
  source.trainable = c.model.trainable;
  source.no_decay = c.optimizer.no_decay;
  source.loss_chunk = static_cast<int64_t>(c.model.loss_chunk);
  source.schema = c.schema();
  source.tile = c.storage.tile;
  source.world = static_cast<uint32_t>(c.run.world);
  return source;
}

engine::RuntimeOptions runtime_options(const configs::RunConfig& c) {
  engine::RuntimeOptions runtime;
  runtime.device = c.machine.device == configs::DeviceType::cuda ? gpu::DeviceKind::cuda : gpu::DeviceKind::cpu;
  runtime.deterministic = c.run.deterministic;
  runtime.device_memory = c.memory.gpu.value_or(0);
  runtime.host_memory = c.memory.host.value_or(0);
  runtime.compute_threads = static_cast<int>(c.machine.compute_threads.value_or(0));
  runtime.optimizer_threads = static_cast<int>(c.execution.optimizer_threads.value_or(0));
  runtime.queue.block_size = c.aio.block_size;
  runtime.queue.depth = c.aio.queue_depth;
  runtime.drives = c.storage.paths;
  const configs::LinkOptions& links = c.machine.links;
  runtime.links = {links.h2d.value_or(0), links.d2h.value_or(0),  links.disk_read.value_or(0), links.disk_write.value_or(0),
                   links.net.value_or(0), links.net_latency.value_or(0)};
  return runtime;
}

std::vector<std::filesystem::path> storage_paths(const configs::RunConfig& c) {
  const bool in_run = c.storage.paths.size() == 1 && c.storage.paths.front() == c.run.dir / "store";
  return in_run ? std::vector<std::filesystem::path>{} : c.storage.paths;
}

namespace {

constexpr double kDriveSeconds = 0.3;         // of each burst
constexpr uint64_t kFreeToMeasure = 1 << 30;  // on each drive

// As a step uses them: reads and writes in turn. None where a drive is too full to find out.
std::vector<double> rates_of_drives(const std::vector<std::filesystem::path>& paths) {
  std::vector<double> rates;
  for (const std::filesystem::path& path : paths)
    if (std::filesystem::space(path).available < kFreeToMeasure) return rates;
  for (const io::DiskProfile& drive : io::measure_drives(paths, kDriveSeconds)) rates.push_back(drive.mixed);
  return rates;
}

cpu_adam::GroupOptions optimizer_options(const configs::OptimizerOptions& o) {
  cpu_adam::GroupOptions group;
  group.beta1 = o.betas.at(0);
  group.beta2 = o.betas.at(1);
  group.eps = o.eps;
  group.weight_decay = o.weight_decay;
  group.decoupled = o.type == configs::OptimizerType::adamw || o.adam_w_mode;
  group.bias_correction = o.bias_correction && o.type != configs::OptimizerType::lion;
  return group;
}

}  // namespace

offload::PlanOptions plan_options(const configs::RunConfig& c) {
  offload::PlanOptions plan;
  plan.weights = c.zero_optimization.offload_param.device.value();
  plan.state = c.zero_optimization.offload_optimizer.device.value();
  plan.placement = c.execution.overlap.value_or(offload::Placement::none);
  plan.pools.weights = c.execution.pools.weights.value_or(0);
  plan.pools.state = c.execution.pools.state.value_or(0);
  plan.pools.gradients = c.execution.pools.gradients.value_or(0);
  plan.pools.device_slots = c.execution.device_slots.value_or(2);
  plan.keep_weights = c.execution.keep_weights.value_or(0);
  plan.keep_graphs = c.execution.keep_graphs.value_or(0);
  plan.resident_blocks = c.execution.resident_blocks.value_or(0);
  plan.zero_stage = static_cast<uint32_t>(c.zero_optimization.stage);
  return plan;
}

engine::TrainerOptions trainer_options(const configs::RunConfig& c) {
  engine::TrainerOptions o;
  o.model = model_source(c);
  o.runtime = runtime_options(c);
  o.train_tokens = c.data.train;
  o.eval_tokens = c.data.eval;
  o.sequence = static_cast<uint32_t>(c.data.sequence_length);
  o.micro_batch = static_cast<uint32_t>(c.micro_batch());
  o.accumulation = static_cast<uint32_t>(c.accumulation());
  o.steps = c.steps.value_or(0);
  o.seed = c.run.seed;
  o.eval_every = c.run.eval_every;
  o.commit_every = c.checkpoint.every;
  if (c.optimizer.lr)  // a plan can do without
    o.lr = [scheduler = c.scheduler, base = *c.optimizer.lr](uint64_t step) { return configs::lr_at(scheduler, base, step - 1); };
  o.optimizer = optimizer_options(c.optimizer);
  o.clip = c.gradient_clipping;
  o.skip_nonfinite = c.run.on_nonfinite == configs::OnNonFinite::skip;
  o.grace = c.run.grace;
  o.wire = c.communication_data_type.value();
  o.loss_scaler = c.fp16;
  o.plan = plan_options(c);
  o.pinned = c.memory.pinned.value_or(0);
  o.shadow = c.memory.shadow.value_or(0);
  o.host_boundaries = c.execution.boundaries == configs::Boundaries::host;
  o.reduce_bucket = c.zero_optimization.reduce_bucket_size;
  o.emulated_compute = c.machine.compute.value_or(0);
  o.store.run_dir = c.run.dir;
  o.store.paths = storage_paths(c);
  o.store.drive_rates = c.storage.drive_rates.value_or(std::vector<double>());
  o.store.measure_drives = rates_of_drives;
  o.store.durable = c.storage.durable.value();
  o.store.verify_on_open = c.storage.verify;
  return o;
}

void choose_device(configs::RunConfig* c) {
  if (c->machine.device) return;
  const gpu::CudaUse use = gpu::can_use_cuda();
  configs::choose_device(c, use.usable ? configs::DeviceType::cuda : configs::DeviceType::cpu,
                         use.usable ? use.reason : "no CUDA device can be used: " + use.reason);
}

void choose_threads(configs::RunConfig* c, uint64_t processes) {
  if (c->machine.compute_threads) return;
  if (c->machine.device == configs::DeviceType::cuda)  // not what this machine has: a run may go on on another one
    return configs::choose_compute_threads(c, 1, "the GPU computes");
  const auto threads = static_cast<uint32_t>(std::max<uint64_t>(1, base::detect_topology().usable_cores() / processes));
  configs::choose_compute_threads(c, threads, processes == 1 ? "the cores this process may use" : "an even share of the cores for each rank");
  if (processes > 1 && !c->execution.optimizer_threads) c->execution.optimizer_threads = threads;
}

void choose_tiers(configs::RunConfig* c, const offload::ModelDesc& model, uint64_t gpu, uint64_t host) {
  if (c->zero_optimization.offload_param.device && c->zero_optimization.offload_optimizer.device) return;
  uint64_t parameters = 0;
  for (const auto& block : model.blocks)
    for (const auto& tensor : block.tensors) parameters += tensor.count();
  // Compute weights, wire gradients and state; a fifth for activations and the head.
  const uint64_t state = offload::parameter_bytes(c->schema());
  const uint64_t on_device = parameters * (state + 4) * 6 / 5, in_ram = parameters * (state + 2);
  const auto reason = [&](const char* what) {
    return fmt::format("{}: {} parameters take {} on the device ({} given) or {} in RAM ({} given)", what, parameters,
                       base::format_bytes(on_device), base::format_bytes(gpu), base::format_bytes(in_ram), base::format_bytes(host));
  };
  const bool steps_on_disk = c->storage.durable == offload::Durable::step;
  if (on_device <= gpu && !steps_on_disk) {
    configs::choose_tiers(c, Tier::none, Tier::none, reason("fits the device"));
  } else if (in_ram <= host) {
    configs::choose_tiers(c, Tier::cpu, Tier::cpu, reason("fits RAM"));
  } else {
    configs::choose_tiers(c, Tier::nvme, Tier::nvme, reason("fits neither"));
  }
}

namespace {

// What is free is for all processes on the machine. A GPU is one's own.
void share_memory(configs::RunConfig* c, uint64_t processes) {
  const bool emulated = c->machine.device != configs::DeviceType::cuda;
  const uint64_t share = engine::automatic_memory() / processes;
  const uint64_t given = (emulated ? c->memory.gpu.value_or(0) : 0) + c->memory.host.value_or(0);
  if (c->memory.host && (c->memory.gpu || !emulated)) return;
  const uint64_t left = share > given ? share - given : 0;
  const bool both = emulated && !c->memory.gpu && !c->memory.host;
  if (emulated && !c->memory.gpu) c->memory.gpu = both ? left / 2 : left;
  if (!c->memory.host) c->memory.host = both ? left / 2 : left;
}

// Bytes that "auto" would give device and host.
std::pair<uint64_t, uint64_t> memory_to_share(const configs::RunConfig& c) {
  const uint64_t free = engine::automatic_memory();
  if (c.machine.device != configs::DeviceType::cuda) return {c.memory.gpu.value_or(free / 2), c.memory.host.value_or(free / 2)};
  return {c.memory.gpu ? *c.memory.gpu : gpu::free_cuda_memory() / 10 * 9, c.memory.host.value_or(free)};
}

}  // namespace

uint64_t device_memory(const configs::RunConfig& c) {
  if (c.memory.gpu) return *c.memory.gpu;
  const bool cuda = c.machine.device == configs::DeviceType::cuda;
  return (cuda ? memory_to_share(c).first : engine::memory_budget(0, c.memory.host.value_or(0))) / 20 * 19;
}

uint64_t host_memory(const configs::RunConfig& c) {
  if (c.memory.host) return *c.memory.host;
  const bool cuda = c.machine.device == configs::DeviceType::cuda;
  return (cuda ? memory_to_share(c).second : engine::memory_budget(0, c.memory.gpu.value_or(0))) / 20 * 19;
}

void choose_open_values(configs::RunConfig* c, uint64_t processes) {
  choose_device(c);
  choose_threads(c, processes);
  if (processes > 1) share_memory(c, processes);
  if (!c->steps && c->epochs) {
    const auto tokens = engine::TokenFile::open(c->data.train);
    const engine::Packing packing(tokens, {.seed = c->run.seed, .sequence = static_cast<uint32_t>(c->data.sequence_length), .shuffle = true});
    const double samples = *c->epochs * static_cast<double>(packing.samples_per_epoch());
    const auto steps = static_cast<uint64_t>(std::ceil(samples / static_cast<double>(c->micro_batch() * c->accumulation() * c->run.world)));
    configs::choose_steps(c, steps, fmt::format("{} epochs of {} samples", *c->epochs, packing.samples_per_epoch()));
  }
  if (c->zero_optimization.offload_param.device && c->zero_optimization.offload_optimizer.device) return;
  const auto [gpu, host] = memory_to_share(*c);
  choose_tiers(c, engine::describe(engine::read_hf_config(c->model.path), model_source(*c)), gpu, host);
}

}  // namespace sluice::apps
