#include "engine/trainer.h"

#include <algorithm>
#include <chrono>

#include "base/size_text.h"
#include "base/units.h"
#include "engine/dry_run.h"
#include "engine/evaluator.h"
#include "engine/flops.h"
#include "engine/fused_attention.h"
#include "engine/memory_load.h"
#include "engine/model_source.h"
#include "engine/run_shape.h"
#include "engine/store_ranks.h"
#include "engine/step_runner.h"
#include "engine/tensor_device.h"
#include "engine/token_file.h"

namespace sluice::engine {

using base::ErrorKind;
using offload::Durable;

namespace {

constexpr const char* kLowerDeviceNeed =
    "train_micro_batch_size_per_gpu, data.sequence_length, execution.resident_blocks, execution.keep_graphs or execution.device_slots";

// The communicator is made with the device, before there is a layout.
RuntimeOptions connected(const TrainerOptions& o) {
  RuntimeOptions runtime = o.runtime;
  if (!o.connect) return runtime;
  const offload::Layout layout(describe(read_hf_config(o.model.path), o.model), o.model.schema, o.model.tile, o.model.world);
  runtime.connect = [&o, staging = comm_staging(o, layout)](gpu::Device& device) {
    return o.connect({.device = &device, .staging = staging, .rate = o.runtime.links.net, .latency = o.runtime.links.net_latency});
  };
  return runtime;
}

std::vector<const offload::Plan*> all_plans(const TrainPlans& plans, const offload::Plan& eval) {
  std::vector<const offload::Plan*> all = plans.all();
  all.push_back(&eval);
  return all;
}

}  // namespace

struct Trainer::Impl {
  Impl(const TrainerOptions& o, const TrainerEvents& e);
  uint32_t lowest() const;
  bool commits_steps() const { return options.store.durable == Durable::step; }
  offload::Ranks& store_ranks();
  bool timing_only() const { return options.emulated_compute > 0; }
  void check_budgets() const;
  void load();
  RunOutcome run(base::Trace* trace);
  uint64_t segment_end(uint64_t step) const;
  void commit_memory(const offload::StepMeta& meta);
  void write_memory(const offload::StepMeta& meta);
  EvalResult evaluate();

  const TrainerOptions options;
  const TrainerEvents events;
  const LossScaler scaler{options.loss_scaler};
  Runtime runtime;
  ModelSetup setup;
  const TokenExpectation expected;
  TokenFile train_file;
  std::optional<TokenFile> eval_file;
  Packing train_data;
  std::optional<Packing> eval_data;
  const offload::PlanOptions plan_options_;
  const TrainPlans plans;
  const offload::Plan eval_plan;
  const StepShape shape;
  std::unique_ptr<StepBuffers> buffers;
  std::string attention;  // kernel
  uint64_t temporaries = 0;
  std::unique_ptr<offload::Ranks> ranks;  // as the store sees them; null: one
  std::unique_ptr<offload::Store> store;
  std::unique_ptr<ComputeOps> compute;
  std::unique_ptr<TransferOps> transfer;
  std::unique_ptr<DeviceUpdate> device_update;
  std::unique_ptr<UpdateOps> update;
  std::unique_ptr<TrainSource> source;
  std::unique_ptr<CommOps> comm_ops;        // several ranks
  std::unique_ptr<StepExchange> exchange;   // several ranks
  std::unique_ptr<StepHandlers> handlers;
  std::unique_ptr<Evaluator> evaluator;
  uint64_t committed_step = 0;  // of the store
};

Trainer::Impl::Impl(const TrainerOptions& o, const TrainerEvents& e)
    : options(o),
      events(e),
      runtime(connected(o)),
      setup(o.model),
      expected(expect_tokens_of(o.model.path, static_cast<uint64_t>(setup.reader.config().vocab))),
      train_file(TokenFile::open(o.train_tokens, expected)),
      train_data(train_file, PackingOptions{.seed = o.seed, .sequence = o.sequence, .shuffle = o.shuffle}),
      plan_options_(train_plan_options(o, setup.layout, setup.reader.config().hidden)),
      plans(setup.layout, plan_options_, o.guess_limit.has_value()),
      eval_plan(offload::build_eval_plan(setup.layout, plan_options_)),
      shape(setup.layout, step_options(o, setup.layout, setup.reader.config().hidden, plan_options_),
            ring_sizes(all_plans(plans, eval_plan))) {
  check_sequence(setup.reader.config(), o.sequence);
  if (!o.eval_tokens.empty()) {
    eval_file.emplace(TokenFile::open(o.eval_tokens, expected));
    eval_data.emplace(*eval_file, PackingOptions{.seed = 0, .sequence = o.sequence, .shuffle = false});
  }
  SLUICE_CHECK(scaler.enabled() == (offload::number_type(setup.layout.schema()) == offload::NumberType::fp16), "fp16 has a loss scale, other types none");
  attention = attention_kernel(tensor_device(*runtime.device), compute_type(setup.layout), setup.reader.config().head_dim);
  check_plan(eval_plan);
  check_budgets();
  buffers = std::make_unique<StepBuffers>(shape, *runtime.device, runtime.host);
  try {
    temporaries = measure_temporaries(*setup.model, shape, *buffers, *runtime.device, *runtime.compute,
                                      {.training = true, .keep_graphs = plan_options_.keep_graphs, .lowest_trainable = lowest()});
  } catch (const base::Error& error) {
    if (error.kind() != ErrorKind::device_memory) throw;
    base::fail(ErrorKind::device_memory,
               "memory.gpu is {}: {} go to arenas, and LibTorch's temporaries do not fit in the rest ({}). Raise memory.gpu, or lower {}",
               base::format_bytes(runtime.device->budget().limit()), base::format_bytes(total(shape.rows(), "gpu")), error.what(),
               kLowerDeviceNeed);
  }
  check_budgets();
}

offload::Ranks& Trainer::Impl::store_ranks() {
  if (!runtime.comm) return offload::single_rank();
  if (!ranks) ranks = std::make_unique<StoreRanks>(runtime.comm->control());
  return *ranks;
}

uint32_t Trainer::Impl::lowest() const {
  const auto block = setup.layout.lowest_trainable_block();
  if (!block) base::fail(ErrorKind::config, "model.trainable matches no tensor of {}: nothing to train", options.model.path.string());
  return *block;
}

void Trainer::Impl::check_budgets() const {
  const auto rows = shape.rows();
  const uint64_t gpu = total(rows, "gpu") + temporaries + runtime.stream_bytes, gpu_have = runtime.device->budget().limit();
  if (gpu > gpu_have)
    base::fail(ErrorKind::device_memory,
               "the run needs {} of device memory (arenas {}, temporaries {}) but memory.gpu is {}: set it to at least {}, or lower {}",
               base::format_bytes(gpu), base::format_bytes(gpu - temporaries), base::format_bytes(temporaries),
               base::format_bytes(gpu_have), base::size_text(gpu), kLowerDeviceNeed);
  const uint64_t host = total(rows, "host"), host_have = runtime.host.limit();
  if (host > host_have)
    base::fail(ErrorKind::host_memory,
               "the run needs {} of host memory but has {}: set memory.host to at least {} when the machine has it, move weights or state "
               "to nvme, or lower execution.pools",
               base::format_bytes(host), base::format_bytes(host_have), base::size_text(host));
}

void Trainer::Impl::load() {
  const std::vector<std::span<std::byte>> regions = buffers->host_regions();
  runtime.queue->register_memory(regions);
  const int published = store->published(), target = store->target();
  load_homes(shape, *buffers, *store, published, runtime, [&](uint64_t done, uint64_t total) {
    if (events.on_progress) events.on_progress("loading weights and state into memory", done, total);
  });
  ComputeOps::Options math{.keep_graphs = plan_options_.keep_graphs, .training = true, .lowest_trainable = lowest()};
  math.timed = runtime.device->kind() == gpu::DeviceKind::cpu;
  if (timing_only()) {
    math.flops_per_s = options.emulated_compute;
    math.flops = [flops = StepFlops{setup.layout, setup.reader.config(), options.micro_batch, options.sequence, math.keep_graphs}](
                     const offload::Op& op) { return flops.of(op); };
  }
  compute = std::make_unique<ComputeOps>(*setup.model, shape, *buffers, math);
  transfer = std::make_unique<TransferOps>(shape, *buffers, *store, *runtime.queue);
  if (shape.some_state_on_device() && runtime.update)
    device_update = std::make_unique<DeviceUpdate>(*runtime.update, buffers->leaf_sums(), buffers->host_leaf_sums());
  const bool writes = plan_options_.write_weights || plan_options_.write_state;
  update = std::make_unique<UpdateOps>(
      shape, *buffers, runtime.adam, device_update.get(),
      UpdateOps::Options{.clip = options.clip, .skip_nonfinite = options.skip_nonfinite, .scaler = scaler, .hash = writes});
  source = std::make_unique<TrainSource>(options, train_data, store->meta(), events);
  handlers = std::make_unique<StepHandlers>(
      shape, *compute, *transfer, update.get(), *store, *source,
      StepHandlers::Options{.alternate_slots = commits_steps() && !timing_only(), .commits = commits_steps(), .timing_only = timing_only(),
                            .scaler = scaler});
  if (runtime.comm) {
    comm_ops = std::make_unique<CommOps>(shape, *buffers, *runtime.comm);
    exchange = std::make_unique<StepExchange>(shape, runtime.comm->control(), [this] { return source->stop_wanted(); });
    handlers->connect(comm_ops.get(), exchange.get());
  }
  handlers->set_progress(store->meta().skipped, scaler.resumed(store->meta()));
  handlers->set_newest({.read = published, .write = target});
  evaluator = std::make_unique<Evaluator>(runtime, *setup.model, shape, *buffers, *store, eval_plan);
  committed_step = store->meta().step;
}

// Up to the next evaluation, commit, or the end.
uint64_t Trainer::Impl::segment_end(uint64_t step) const {
  uint64_t end = options.steps;
  const auto next = [&](uint64_t every) {
    if (every != 0) end = std::min(end, (step / every + 1) * every);
  };
  if (eval_data) next(options.eval_every);
  if (options.store.durable == Durable::checkpoint) next(options.commit_every);
  return end;
}

RunOutcome Trainer::Impl::run(base::Trace* trace) {
  std::optional<GuessPolicy> policy;
  if (plans.deferred) policy.emplace(*options.guess_limit);
  runtime.device->reset_peak();  // the dry run's are those of the estimate
  StepRunner runner(plans, *handlers, *source, policy ? &*policy : nullptr,
                    runtime.streams(trace));
  offload::StepMeta meta = store->meta();
  while (meta.step < options.steps && !source->stop_requested()) {
    meta = runner.run(meta, segment_end(meta.step));
    if (!commits_steps() && !timing_only() && (meta.step == options.steps || source->stop_requested() ||
                             (options.commit_every != 0 && meta.step % options.commit_every == 0)))
      commit_memory(meta);
    if (eval_data && options.eval_every != 0 && meta.step % options.eval_every == 0 && !source->stop_requested()) {
      const EvalResult result = evaluate();
      if (events.on_eval) events.on_eval(meta.step, result);
    }
  }
  if (!timing_only()) store->close(meta);  // its bytes are those of no step
  return {meta, meta.step < options.steps};
}

// durable: checkpoint and none. Steps since the last commit are in memory, or in the slot that is not published.
void Trainer::Impl::commit_memory(const offload::StepMeta& meta) {
  if (meta.step == committed_step) return;
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t written = runtime.queue->stats().bytes_written;
  if (handlers->changed()) {
    write_memory(meta);
  } else if (options.store.durable == Durable::checkpoint) {  // the slot that is not published holds no step
    store->commit_unchanged(meta);
  }
  committed_step = meta.step;
  if (events.on_commit)
    events.on_commit({meta.step, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
                      runtime.queue->stats().bytes_written - written});
}

void Trainer::Impl::write_memory(const offload::StepMeta& meta) {
  const int slot = handlers->newest().write;
  store->begin_writes();
  std::vector<uint64_t> hashes = handlers->hashes();
  store_homes(shape, *buffers, *store, slot, runtime, hashes);
  for (uint32_t tile = 0; tile < setup.layout.tiles().size(); ++tile) {
    if (!setup.layout.tiles()[tile].trainable || !shape.in_own_store(tile)) continue;
    store->set_hash(tile, offload::Part::weights, hashes[2 * tile]);
    store->set_hash(tile, offload::Part::state, hashes[2 * tile + 1]);
  }
  if (options.store.durable != Durable::checkpoint) return;  // with none, close() does the rest
  store->prepare(meta);
  store->publish();
  handlers->set_newest({.read = store->published(), .write = store->target()});
}

EvalResult Trainer::Impl::evaluate() {
  if (!eval_data) base::fail(ErrorKind::config, "data.eval is not set: there is nothing to evaluate on");
  return evaluator->run(*eval_data, handlers->newest().read, [&](uint64_t done, uint64_t total) {
    if (events.on_progress) events.on_progress("evaluating", done, total);
  });
}

Trainer::Trainer(const TrainerOptions& options, const TrainerEvents& events) : impl_(std::make_unique<Impl>(options, events)) {}
Trainer::~Trainer() = default;

MemoryReport Trainer::memory() const {
  MemoryReport report;
  report.rows = impl_->shape.rows();
  report.rows.push_back({"gpu", "temporaries", impl_->temporaries, true});
  if (impl_->runtime.stream_bytes != 0) report.rows.push_back({"gpu", "streams", impl_->runtime.stream_bytes});
  if (const uint64_t bytes = device_memory().runtime; bytes != 0)
    report.rows.push_back({"gpu", "runtime", bytes, /*measured=*/true, /*estimated=*/false, /*beside=*/true});
  report.gpu_have = impl_->runtime.device->budget().limit();
  report.host_have = impl_->runtime.host.limit();
  return report;
}

const offload::Plan& Trainer::plan() const { return impl_->plans.chosen.train; }
const offload::Layout& Trainer::layout() const { return impl_->setup.layout; }
std::string Trainer::describe_device() const {
  return fmt::format("{}; attention by {}", impl_->runtime.device->describe(), impl_->attention);
}
comm::CommStats Trainer::traffic() const { return impl_->runtime.comm ? impl_->runtime.comm->stats() : comm::CommStats{}; }
uint64_t Trainer::step() const { return impl_->store->meta().step; }
gpu::MemoryStats Trainer::device_memory() const { return impl_->runtime.device->memory(); }

RunCounters Trainer::counters() const {
  RunCounters counters;
  counters.host_peak = impl_->runtime.host.peak();
  counters.disk = impl_->runtime.queue->stats();
  if (impl_->compute) counters.recompute_seconds = impl_->compute->recompute_seconds();
  return counters;
}

double Trainer::flops_per_step() const {
  const TrainerOptions& o = impl_->options;
  const StepFlops flops{impl_->setup.layout, impl_->setup.reader.config(), o.micro_batch, o.sequence, static_cast<uint32_t>(impl_->setup.layout.blocks().size())};
  double sum = 0;
  for (const offload::Op& op : plan().ops) sum += flops.of(op);
  return sum * o.model.world;
}

uint64_t Trainer::commit_bytes() const { return engine::commit_bytes(impl_->shape, impl_->options.store.durable); }

void Trainer::create() {
  offload::StoreOptions store = impl_->options.store;
  store.model_digest = impl_->setup.reader.digest();
  offload::StepMeta meta;
  meta.seed = impl_->options.seed;
  if (impl_->scaler.enabled()) write_scale(impl_->scaler.initial(), &meta);
  const auto& tiles = impl_->setup.layout.tiles();
  uint64_t done = 0;  // of this rank's
  impl_->store = offload::Store::create(
      store, impl_->setup.layout, meta, [&](const offload::Tile& tile, std::span<std::byte> weights, std::span<std::byte> master) {
        fill_tile(impl_->setup.reader, impl_->setup.layout, tile, weights, master);
        if (impl_->events.on_progress) impl_->events.on_progress("creating the store", ++done * impl_->setup.layout.world(), tiles.size());
      },
      impl_->store_ranks());
  impl_->load();
}

offload::OpenReport Trainer::open() {
  offload::StoreOptions store = impl_->options.store;
  store.model_digest = impl_->setup.reader.digest();
  offload::OpenReport report;
  impl_->store = offload::Store::open(store, impl_->setup.layout, &report, impl_->store_ranks());
  impl_->load();
  return report;
}

RunOutcome Trainer::run(base::Trace* trace) { return impl_->run(trace); }
void Trainer::finish() {
  if (impl_->runtime.comm) impl_->runtime.comm->control().close();
}
EvalResult Trainer::evaluate() { return impl_->evaluate(); }

}  // namespace sluice::engine
