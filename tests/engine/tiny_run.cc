#include "tests/engine/tiny_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

namespace sluice::engine {

namespace fs = std::filesystem;

namespace {

// Removed with everything in it.
struct TemporaryFolder {
  fs::path path;
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "sluice-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path = name;
  }
  ~TemporaryFolder() { fs::remove_all(path); }
};

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
  o.model.no_decay = {"*norm*"};
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
  o.micro_batch = 2;
  o.accumulation = run.accumulation;
  o.steps = run.steps;
  o.eval_every = run.eval_every;
  o.seed = 1;
  o.lr = [](uint64_t step) { return 1e-3 * static_cast<double>(std::min<uint64_t>(step, 3)) / 3; };
  o.optimizer.weight_decay = 0.1;
  o.optimizer.beta2 = 0.95;
  o.wire = run.schema == offload::Schema::bf16 ? gpu::WireType::bf16 : gpu::WireType::fp32;
  o.plan.weights = run.weights;
  o.plan.state = run.state;
  o.clip = run.clip;
  o.pinned = run.pinned;
  o.plan.placement = run.placement;
  o.plan.pools = run.pools;
  o.plan.keep_weights = run.keep_weights;
  o.plan.keep_graphs = run.keep_graphs;
  o.store.run_dir = run_dir;
  o.store.durable = run.durable;
  o.store.lock_seconds = 5;
  if (run.adjust) run.adjust(o);
  return o;
}

TinyResult run_tiny(const TinyRun& run) {
  const TemporaryFolder folder;
  TinyResult result;
  std::vector<uint64_t> ends = run.stops;
  ends.push_back(run.steps);
  for (size_t i = 0; i < ends.size(); ++i) {
    TrainerOptions options = tiny_options(run, folder.path);
    options.steps = ends[i];
    TrainerEvents events;
    events.on_step = [&](const StepReport& step) {
      result.losses.push_back(step.loss);
      result.norms.push_back(step.grad_norm);
      result.clips.push_back(step.clip);
      result.redone += step.redone ? 1 : 0;
    };
    events.on_eval = [&](uint64_t, const EvalResult& eval) { result.eval_losses.push_back(eval.loss); };
    Trainer trainer(options, events);
    result.device_planned = planned(trainer);
    i == 0 ? trainer.create() : static_cast<void>(trainer.open());
    result.skipped = trainer.run().meta.skipped;
    result.device_peak = trainer.device_memory().peak;
    result.device_held = trainer.device_memory().held_peak;
  }
  const TrainerOptions options = tiny_options(run, folder.path);
  const ModelSetup setup(options.model);
  offload::OpenReport report;
  const auto store = offload::Store::open_read_only(folder.path, setup.layout, &report);
  result.digest = digest_state(setup.layout, *store, store->published());
  return result;
}

}  // namespace sluice::engine
