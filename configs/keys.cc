#include "configs/keys.h"

#include <algorithm>
#include <limits>

#include "configs/codec.h"
#include "configs/rate_codec.h"

namespace sluice::configs {
namespace {

using offload::Durable;
using offload::Placement;
using offload::Tier;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Interval kPositive{0, kInfinity, true};
constexpr Interval kNotNegative{0, kInfinity};
constexpr Interval kUnit{0, 1};
constexpr Interval kBeta{0, 1, false, true};

// Collects rows. `field` gives the member of a RunConfig (const or not) that the codec's type belongs to.
class Table {
 public:
  template <class T, class Field>
  Key& add(std::string path, const Codec<T>& codec, Field field, std::string help) {
    Key key;
    key.path = std::move(path);
    key.allowed = codec.allowed;
    key.help = std::move(help);
    key.text = codec.text;
    key.read = [codec, field](RunConfig& config, const Json& value) {
      std::optional<T> read = codec.read(value);
      if (!read) return false;
      field(config) = std::move(*read);
      return true;
    };
    key.write = [codec, field](const RunConfig& config) { return codec.write(field(config)); };
    keys_.push_back(std::move(key));
    return keys_.back();
  }
  std::vector<Key> take() { return std::move(keys_); }

 private:
  std::vector<Key> keys_;
};

#define FIELD(member)         \
  [](auto& config) -> auto& { \
    return config.member;     \
  }

void add_batch_and_precision(Table& t) {
  t.add("train_batch_size", maybe(integer(1)), FIELD(train_batch_size),
        "samples per step over all ranks; any two of the three batch keys give the third");
  t.add("train_micro_batch_size_per_gpu", maybe(integer(1)), FIELD(train_micro_batch_size_per_gpu),
        "samples that a rank computes at once")
      .numeric = true;
  t.add("gradient_accumulation_steps", maybe(integer(1)), FIELD(gradient_accumulation_steps),
        "micro-batches per step");
  t.add("bf16.enabled", flag(), FIELD(bf16), "compute in bfloat16 with an exact fp32 master; neither this nor fp16: fp32")
      .numeric = true;
  t.add("fp16.enabled", flag(), FIELD(fp16.enabled), "compute in float16 with an fp32 master and loss scaling, instead of bfloat16")
      .numeric = true;
  t.add("fp16.loss_scale", number(kNotNegative), FIELD(fp16.loss_scale), "what the loss is multiplied by; 0: dynamic, by the next keys")
      .numeric = true;
  t.add("fp16.initial_scale_power", integer(0, 64), FIELD(fp16.initial_scale_power), "a dynamic scale begins at 2 to this power")
      .numeric = true;
  t.add("fp16.loss_scale_window", integer(1), FIELD(fp16.loss_scale_window), "steps in a row without overflow that double the scale")
      .numeric = true;
  t.add("fp16.hysteresis", integer(1), FIELD(fp16.hysteresis),
        "the overflow that halves the scale, counted from 1; earlier ones only skip their step")
      .numeric = true;
  t.add("fp16.consecutive_hysteresis", flag(), FIELD(fp16.consecutive_hysteresis),
        "overflows count only in a row; false: until the scale doubles")
      .numeric = true;
  t.add("fp16.min_loss_scale", number(kPositive), FIELD(fp16.min_loss_scale), "a dynamic scale does not fall below; run.on_nonfinite says what follows")
      .numeric = true;
  t.add("gradient_clipping", number(kNotNegative), FIELD(gradient_clipping),
        "largest global gradient norm; 0: no clipping");
  t.add("communication_data_type",
        maybe(choice<gpu::WireType>({{"bf16", gpu::WireType::bf16}, {"fp16", gpu::WireType::fp16}, {"fp32", gpu::WireType::fp32}})),
        FIELD(communication_data_type),
        "type that gradients are rounded to, once per step; default: the compute type")
      .numeric = true;
}

void add_optimizer(Table& t) {
  t.add("optimizer.type",
        choice<OptimizerType>({{"AdamW", OptimizerType::adamw}, {"Adam", OptimizerType::adam}, {"Lion", OptimizerType::lion}}),
        FIELD(optimizer.type), "optimizer, run on the CPU or the device as the tiers say; Lion has one moment: 8 bytes a parameter in bf16 instead of 12");
  t.add("optimizer.params.lr", maybe(number(kNotNegative)), FIELD(optimizer.lr),
        "learning rate (after warm-up); there is no default");
  t.add("optimizer.params.betas", two_numbers(kBeta), FIELD(optimizer.betas), "decay of the two moments; of Lion: in the step's direction, and of its moment");
  t.add("optimizer.params.eps", number(kPositive), FIELD(optimizer.eps),
        "AdamW, Adam: added to the root of the second moment");
  t.add("optimizer.params.weight_decay", number(kNotNegative), FIELD(optimizer.weight_decay), "weight decay");
  t.add("optimizer.params.bias_correction", flag(), FIELD(optimizer.bias_correction),
        "AdamW, Adam: correct the moments' start at zero");
  t.add("optimizer.params.adam_w_mode", flag(), FIELD(optimizer.adam_w_mode),
        "decoupled decay (AdamW); false, with type Adam only: decay joins the gradient");
  t.add("optimizer.params.no_decay", globs(), FIELD(optimizer.no_decay),
        "parameters without weight decay; default: norms and biases");
}

void add_scheduler(Table& t) {
  t.add("scheduler.type",
        choice<SchedulerType>({{"none", SchedulerType::none},
                               {"WarmupLR", SchedulerType::warmup},
                               {"WarmupDecayLR", SchedulerType::warmup_decay},
                               {"WarmupCosineLR", SchedulerType::warmup_cosine}}),
        FIELD(scheduler.type), "learning rate over the steps; none: constant");
  t.add("scheduler.params.warmup_num_steps", integer(1), FIELD(scheduler.warmup_num_steps),
        "steps of warm-up (at least 2 are used)");
  t.add("scheduler.params.warmup_type",
        choice<WarmupCurve>({{"linear", WarmupCurve::linear}, {"log", WarmupCurve::log}}),
        FIELD(scheduler.warmup_type), "curve of the warm-up (DeepSpeed's own default is log)");
  t.add("scheduler.params.warmup_min_lr", number(kNotNegative), FIELD(scheduler.warmup_min_lr),
        "WarmupLR, WarmupDecayLR: first learning rate");
  t.add("scheduler.params.warmup_max_lr", maybe(number(kNotNegative)), FIELD(scheduler.warmup_max_lr),
        "WarmupLR, WarmupDecayLR: learning rate after warm-up; default: the optimizer's");
  t.add("scheduler.params.total_num_steps", maybe(integer(1)), FIELD(scheduler.total_num_steps),
        "WarmupDecayLR, WarmupCosineLR: step at which the schedule ends; default: the run's steps");
  t.add("scheduler.params.warmup_min_ratio", number(kUnit), FIELD(scheduler.warmup_min_ratio),
        "WarmupCosineLR: first learning rate, as a share of lr");
  t.add("scheduler.params.cos_min_ratio", number(kUnit), FIELD(scheduler.cos_min_ratio),
        "WarmupCosineLR: last learning rate, as a share of lr");
}

void add_zero(Table& t) {
  const auto tier = or_auto(choice<Tier>({{"none", Tier::none}, {"cpu", Tier::cpu}, {"nvme", Tier::nvme}}));
  t.add("zero_optimization.stage", integer(0, 3), FIELD(zero_optimization.stage),
        "what several ranks share out: 1 the optimizer state, 2 gradients too, 3 weights too; 0 nothing");
  t.add("zero_optimization.reduce_bucket_size", integer(1), FIELD(zero_optimization.reduce_bucket_size),
        "several ranks: elements of a gradient that are reduced at a time; buffers for them are device memory");
  t.add("zero_optimization.offload_param.device", tier, FIELD(zero_optimization.offload_param.device),
        "home of the weights: none (the device), cpu, nvme; auto: what fits");
  t.add("zero_optimization.offload_param.nvme_path", path(), FIELD(zero_optimization.offload_param.nvme_path),
        "folder on the drive for weights; storage.paths wins");
  t.add("zero_optimization.offload_optimizer.device", tier, FIELD(zero_optimization.offload_optimizer.device),
        "home of the optimizer state: none (the device), cpu, nvme; auto: what fits");
  t.add("zero_optimization.offload_optimizer.nvme_path", path(),
        FIELD(zero_optimization.offload_optimizer.nvme_path),
        "folder on the drive for optimizer state; storage.paths wins");
  t.add("aio.block_size", bytes(4096), FIELD(aio.block_size),
        "piece of a disk transfer; a multiple of 4 KiB");
  t.add("aio.queue_depth", integer<uint32_t>(1, 1024), FIELD(aio.queue_depth), "pieces in flight");
}

void add_job(Table& t) {
  t.add("model.path", path(), FIELD(model.path), "Hugging Face folder: config.json and safetensors");
  t.add("model.family", text(), FIELD(model.family), "family of model.sizes given in braces: llama, mistral, qwen2, qwen3, gpt2, gemma2 or gemma3_text; a known name has its own");
  t.add("model.sizes", model_sizes(), FIELD(model.sizes),
        "instead of model.path: a model that is not on disk, for `sluice plan`");
  t.add("model.trainable", globs(), FIELD(model.trainable),
        "parameters to train, by Hugging Face name; others are frozen");
  t.add("model.loss_chunk", integer(1, 1 << 20), FIELD(model.loss_chunk),
        "tokens of the head and loss at a time")
      .numeric = true;
  t.add("data.train", path(), FIELD(data.train), "token file to train on, from `sluice prepare`");
  t.add("data.eval", path(), FIELD(data.eval), "token file to evaluate on");
  t.add("data.sequence_length", integer(2, 1 << 24), FIELD(data.sequence_length), "tokens of a sample")
      .numeric = true;
  t.add("steps", maybe(integer(0)), FIELD(steps), "optimizer steps of the whole run; or epochs");
  t.add("epochs", maybe(number(kPositive)), FIELD(epochs),
        "passes over data.train, fractions allowed; or steps");
  t.add("run.dir", path(), FIELD(run.dir), "folder of the run; default: runs/<config name>");
  t.add("run.world", integer(1, 65536), FIELD(run.world), "ranks; the launcher (--nproc, mpirun, torchrun, srun) decides");
  t.add("run.seed", integer(0), FIELD(run.seed), "of data order and dropout").numeric = true;
  t.add("run.eval_every", integer(0), FIELD(run.eval_every),
        "steps between evaluations; 0: none during the run");
  t.add("run.log_every", integer(1), FIELD(run.log_every), "steps between lines on the terminal");
  t.add("run.deterministic", flag(), FIELD(run.deterministic), "only kernels that give equal bits each time; false is for CUDA")
      .numeric = true;
  t.add("run.on_nonfinite", choice<OnNonFinite>({{"stop", OnNonFinite::stop}, {"skip", OnNonFinite::skip}}),
        FIELD(run.on_nonfinite), "at a gradient that is not finite: stop before any write, or skip the step; an overflow of fp16 that a lower loss scale can cure skips anyway");
  t.add("run.on_drift", choice<OnDrift>({{"warn", OnDrift::warn}, {"stop", OnDrift::stop}}), FIELD(run.on_drift),
        "a lane 15 % slower than planned or than at the start: warn, or commit and stop as for a signal");
  t.add("run.grace", number({0, 86400}), FIELD(run.grace),
        "seconds that a stop signal may take to finish and commit the step");
}

void add_machine(Table& t) {
  t.add("storage.paths", paths(), FIELD(storage.paths),
        "folders for the store, one per drive; default: nvme_path, else run.dir/store");
  t.add("storage.drive_rates", or_auto(rates("B/s")), FIELD(storage.drive_rates),
        "sustained rate of each of storage.paths: the store is dealt in proportion; auto: as measured in a second when it is made, all at once");
  t.add("storage.durable",
        maybe(choice<Durable>(
            {{"step", Durable::step}, {"checkpoint", Durable::checkpoint}, {"none", Durable::none}})),
        FIELD(storage.durable),
        "what a crash may cost: the step at work (step), the work since a checkpoint, or the run (none); "
        "default: step when the state is on nvme, else checkpoint");
  t.add("checkpoint.every", integer(0), FIELD(checkpoint.every),
        "durable checkpoint: steps between commits of the state in memory; 0: only at the end and at a stop");
  t.add("storage.tile", integer(65536, 1u << 30), FIELD(storage.tile),
        "parameters of a tile; a multiple of 65536, fixed when a run is created");
  t.add("storage.verify", flag(), FIELD(storage.verify),
        "check the whole store against its checksums whenever it is opened");
  t.add("storage.tbw", maybe(bytes(1)), FIELD(storage.tbw),
        "bytes the drives together are rated to take (\"600TB\"); sluice plan then says how long they last");
  t.add("memory.gpu", or_auto(bytes(1)), FIELD(memory.gpu), "device memory that may be used");
  t.add("memory.host", or_auto(bytes(1)), FIELD(memory.host), "host memory that may be used");
  t.add("memory.pinned", or_auto(bytes()), FIELD(memory.pinned),
        "host memory for tiles of tier nvme, from the embedding up: never read again, still written; auto: 0, or on a measured machine what is fastest within memory.host");
  t.add("memory.shadow", or_auto(bytes()), FIELD(memory.shadow),
        "overlap backward and spread without storage.durable \"step\": host memory for old copies of tiles in RAM, which alone may be updated before the "
        "gradient norm is known; auto: a quarter of all, or on a measured machine what is fastest, within memory.host");
  t.add("machine.device", or_auto(choice<DeviceType>({{"cpu", DeviceType::cpu}, {"cuda", DeviceType::cuda}})),
        FIELD(machine.device), "cuda: a GPU; cpu: the emulated device; auto: the GPU when one can be used")
      .numeric = true;
  t.add("machine.compute_threads", or_auto(integer<uint32_t>(1, 4096)), FIELD(machine.compute_threads),
        "threads of the math on the cpu device; auto: all this process may use")
      .numeric = true;
  const auto link = maybe(rate("B/s"));
  t.add("machine.links.h2d", link, FIELD(machine.links.h2d), "emulated: copies to the device");
  t.add("machine.links.d2h", link, FIELD(machine.links.d2h), "emulated: copies from the device");
  t.add("machine.links.net", link, FIELD(machine.links.net), "emulated: what a rank receives from the others");
  t.add("machine.links.net_latency", maybe(number({0, 60})), FIELD(machine.links.net_latency),
        "emulated: seconds of a collective between ranks before its bytes flow");
  t.add("machine.links.disk_read", link, FIELD(machine.links.disk_read), "emulated: disk reads");
  t.add("machine.links.disk_write", link, FIELD(machine.links.disk_write), "emulated: disk writes");
  t.add("machine.compute", maybe(rate("FLOP/s")), FIELD(machine.compute), "emulated: computation; timing only: nothing is computed, nothing is committed");
  t.add("execution.overlap",
        or_auto(choice<Placement>({{"none", Placement::none},
                                   {"forward", Placement::forward},
                                   {"backward", Placement::backward},
                                   {"spread", Placement::spread}})),
        FIELD(execution.overlap),
        "when the optimizer works: after the step (none), in the next forward, in the backward on the guess that "
        "no gradient is clipped, or spread over both; auto: forward, or on a measured machine the fastest. The same bits in all");
  t.add("execution.device_slots", or_auto(integer<uint32_t>(1, 64)), FIELD(execution.device_slots),
        "layers' weights on the device at once; auto: 2, or on a measured machine what is fastest within memory.gpu");
  const auto pool = or_auto(integer<uint32_t>(1, 1 << 24));
  t.add("execution.pools.weights", pool, FIELD(execution.pools.weights),
        "host buffers for weights, in tiles; auto: 16 and, where a guess holds them, some layers more; or on a measured machine what is fastest within memory.host");
  t.add("execution.pools.state", pool, FIELD(execution.pools.state),
        "host buffers for optimizer state, in tiles; auto: 32, or on a measured machine what is fastest within memory.host");
  t.add("execution.pools.gradients", pool, FIELD(execution.pools.gradients),
        "host buffers for gradients, in tiles");
  t.add("execution.optimizer_threads", or_auto(integer<uint32_t>(1, 4096)),
        FIELD(execution.optimizer_threads), "threads of the optimizer; auto: all this process may use");
  t.add("execution.resident_blocks", or_auto(integer<uint32_t>(0, 1 << 20)), FIELD(execution.resident_blocks),
        "first blocks, from the embedding on, that stay on the device with their optimizer state whatever the tiers say; auto: as many as "
        "fit memory.gpu");
  t.add("execution.keep_weights", or_auto(layers()), FIELD(execution.keep_weights),
        "last layers whose weights stay on the device from forward to backward; auto: none, or on a measured machine what is fastest");
  t.add("execution.keep_graphs", or_auto(layers()), FIELD(execution.keep_graphs),
        "last layers that are not computed again in the backward; auto: none, or on a measured machine what is fastest");
  t.add("execution.boundaries",
        or_auto(choice<Boundaries>({{"gpu", Boundaries::gpu}, {"host", Boundaries::host}})),
        FIELD(execution.boundaries), "where the layers' inputs wait for the backward: gpu, or host (RAM)");
}

void add_goals(Table& t) {
  const auto positive = maybe(number(kPositive));
  t.add("goals.max_hours", positive, FIELD(goals.max_hours), "hours that the whole run may take");
  t.add("goals.max_cost", positive, FIELD(goals.max_cost), "what the whole run may cost; needs goals.price_per_hour");
  t.add("goals.price_per_hour", positive, FIELD(goals.price_per_hour), "of the machine, in the money of goals.max_cost");
  t.add("goals.step_seconds", positive, FIELD(goals.step_seconds), "seconds that a step may take");
  t.add("goals.disk_written", maybe(bytes(1)), FIELD(goals.disk_written), "bytes that the whole run may write to the drives (of each machine, when ranks are on several)");
  t.add("goals.eval_loss", positive, FIELD(goals.eval_loss), "evaluation loss to reach; a plan cannot know it");
}

#undef FIELD

}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> table = [] {
    Table t;
    add_batch_and_precision(t);
    add_optimizer(t);
    add_scheduler(t);
    add_zero(t);
    add_job(t);
    add_machine(t);
    add_goals(t);
    return t.take();
  }();
  return table;
}

}  // namespace sluice::configs
