#include "tests/engine/tiny_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <thread>

#include "engine/comm/local_group.h"

namespace sluice::engine {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "sluice-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path = name;
}
TemporaryFolder::~TemporaryFolder() { fs::remove_all(path); }

namespace {

uint64_t planned(const Trainer& trainer) {
  uint64_t bytes = 0;
  for (const auto& row : trainer.memory().rows)
    if (row.place == "gpu") bytes += row.bytes;
  return bytes;
}

}  // namespace

TrainerOptions tiny_options(const TinyRun& run, const fs::path& run_dir) {
  TrainerOptions o;
  o.model.path = test_models() / run.model / "model";
  o.model.trainable = run.trainable;
  o.model.no_decay = {"*norm*", "*ln_*", "*.bias"};
  o.model.loss_chunk = 64;
  o.model.schema = run.schema;
  o.model.tile = run.tile;
  o.runtime.device_memory = run.device_memory;
  o.runtime.host_memory = 1ull << 30;
  o.runtime.compute_threads = 2;
  o.runtime.optimizer_threads = run.optimizer_threads;
  o.runtime.poison = run.poison;
  o.runtime.device = run.device;
  o.runtime.opaque = run.opaque;
  o.runtime.queue_kind = run.queue;
  o.train_tokens = test_models() / "train.tokens";
  o.eval_tokens = test_models() / "eval.tokens";
  o.sequence = 64;
  o.micro_batch = run.micro_batch;
  o.accumulation = run.accumulation;
  o.steps = run.steps;
  o.eval_every = run.eval_every;
  o.seed = 1;
  o.lr = [](uint64_t step) { return 1e-3 * static_cast<double>(std::min<uint64_t>(step, 3)) / 3; };
  o.optimizer.weight_decay = 0.1;
  o.optimizer.beta2 = 0.95;
  o.optimizer.bias_correction = offload::has_variance(run.schema);
  const offload::NumberType numbers = offload::number_type(run.schema);
  o.wire = numbers == offload::NumberType::bf16   ? gpu::WireType::bf16
           : numbers == offload::NumberType::fp16 ? gpu::WireType::fp16
                                                  : gpu::WireType::fp32;
  o.loss_scaler.enabled = numbers == offload::NumberType::fp16;
  o.plan.weights = run.weights;
  o.plan.state = run.state;
  o.clip = run.clip;
  o.pinned = run.pinned;
  o.shadow = run.shadow;
  o.plan.resident_blocks = run.resident_blocks;
  o.plan.placement = run.placement;
  o.plan.pools = run.pools;
  o.plan.keep_weights = run.keep_weights;
  o.plan.keep_graphs = run.keep_graphs;
  o.host_boundaries = run.host_boundaries;
  o.model.world = run.world;
  o.plan.zero_stage = run.zero_stage;
  o.reduce_bucket = 1 << 17;  // several to a block
  o.store.run_dir = run_dir;
  o.store.durable = run.durable;
  o.store.lock_seconds = 5;
  if (run.adjust) run.adjust(o);
  return o;
}

namespace {

TinyResult run_rank(uint32_t rank, comm::LocalGroup* group, TrainerOptions options, bool first) {
  TinyResult result;
  if (group != nullptr) {
    options.plan.rank = rank;
    options.connect = [&](const comm::CommOptions& o) { return group->join(static_cast<int>(rank), o); };
  }
  TrainerEvents events;
  events.on_step = [&](const StepReport& step) {
    result.losses.push_back(step.loss);
    result.norms.push_back(std::isnan(step.grad_norm) ? HUGE_VAL : step.grad_norm);  // a NaN is equal to nothing
    result.clips.push_back(step.clip);
    result.scales.push_back(step.loss_scale);
    result.next_scales.push_back(step.next_loss_scale);
    result.guessed += step.guessed ? 1 : 0;
    result.redone += step.redone ? 1 : 0;
  };
  events.on_eval = [&](uint64_t, const EvalResult& eval) { result.eval_losses.push_back(eval.loss); };
  Trainer trainer(options, events);
  result.device_planned = planned(trainer);
  first ? trainer.create() : static_cast<void>(trainer.open());
  result.skipped = trainer.run().meta.skipped;
  trainer.finish();
  result.device_peak = trainer.device_memory().peak;
  result.device_held = trainer.device_memory().held_peak;
  const auto planned_on = [&](std::initializer_list<offload::Lane> lanes) {
    uint64_t bytes = 0;
    for (const offload::Op& op : trainer.plan().ops)
      if (std::find(lanes.begin(), lanes.end(), op.lane) != lanes.end()) bytes += op.bytes;
    return bytes;
  };
  result.disk_read.push_back(trainer.counters().disk.bytes_read);
  result.planned_read.push_back(planned_on({offload::Lane::disk_weights, offload::Lane::disk_state}));
  if (group != nullptr) {
    result.traffic.push_back(trainer.traffic());
    result.planned_comm.push_back(planned_on({offload::Lane::comm}));
  }
  return result;
}

void append(std::vector<double>& to, const std::vector<double>& more) { to.insert(to.end(), more.begin(), more.end()); }

// One part of the run on all ranks, each in a thread.
TinyResult run_ranks(const TinyRun& run, const TrainerOptions& options, bool first) {
  if (run.world == 1) return run_rank(0, nullptr, options, first);
  comm::LocalGroup group(static_cast<int>(run.world), 20);
  std::vector<TinyResult> results(run.world);
  std::vector<std::exception_ptr> errors(run.world);
  {
    std::vector<std::jthread> threads;
    for (uint32_t r = 0; r < run.world; ++r)
      threads.emplace_back([&, r] {
        try {
          results[r] = run_rank(r, &group, options, first);
        } catch (...) {
          errors[r] = std::current_exception();
        }
      });
  }
  // The one that failed itself says more than those that heard of it.
  std::exception_ptr told;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const base::Error& e) {
      if (e.kind() != base::ErrorKind::peer) throw;
      told = error;
    }
  }
  if (told) std::rethrow_exception(told);
  for (uint32_t r = 1; r < run.world; ++r) {
    EXPECT_EQ(results[r].losses, results[0].losses) << "rank " << r;
    EXPECT_EQ(results[r].norms, results[0].norms) << "rank " << r;
    EXPECT_EQ(results[r].eval_losses, results[0].eval_losses) << "rank " << r;
    EXPECT_LE(results[r].device_peak, results[r].device_planned) << "rank " << r;
    results[0].traffic.push_back(results[r].traffic.at(0));
    results[0].planned_comm.push_back(results[r].planned_comm.at(0));
    results[0].disk_read.push_back(results[r].disk_read.at(0));
    results[0].planned_read.push_back(results[r].planned_read.at(0));
  }
  return results[0];
}

}  // namespace

TinyResult run_tiny(const TinyRun& run) {
  const TemporaryFolder folder;
  TinyResult result;
  std::vector<uint64_t> ends = run.stops;
  ends.push_back(run.steps);
  TinyRun now = run;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (i > 0 && !run.worlds.empty()) now.world = run.worlds.at(i - 1);
    now.accumulation = run.accumulation * run.world / now.world;
    TrainerOptions options = tiny_options(now, folder.path);
    options.steps = ends[i];
    TinyResult part = run_ranks(now, options, i == 0);
    for (auto list : {&TinyResult::losses, &TinyResult::norms, &TinyResult::clips, &TinyResult::scales, &TinyResult::next_scales, &TinyResult::eval_losses}) append(result.*list, part.*list);
    result.device_planned = part.device_planned;
    result.device_peak = part.device_peak;
    result.device_held = part.device_held;
    result.skipped = part.skipped;
    result.guessed += part.guessed;
    result.redone += part.redone;
    result.traffic = part.traffic;
    result.planned_comm = part.planned_comm;
    result.disk_read = part.disk_read;
    result.planned_read = part.planned_read;
  }
  result.digest = digest_of(now, folder.path);
  return result;
}

StateDigest digest_of(const TinyRun& run, const fs::path& run_dir) {
  const ModelSetup setup(tiny_options(run, run_dir).model);
  offload::OpenReport report;
  const auto store = offload::Store::open_read_only(run_dir, setup.layout, &report);
  return digest_state(store->layout(), *store, store->published());
}

}  // namespace sluice::engine
