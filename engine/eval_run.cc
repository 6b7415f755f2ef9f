#include "engine/eval_run.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/units.h"
#include "engine/dry_run.h"
#include "engine/evaluator.h"
#include "engine/memory_load.h"
#include "engine/run_shape.h"
#include "engine/token_file.h"
#include "io/system_error.h"
#include "offload/store_slot_file.h"

namespace sluice::engine {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kStoreOverhead = 4 << 20;  // records, layout and an empty slot

// Nothing trains, so all weights go to the base file of a store whose names are removed as soon as it is open.
std::unique_ptr<offload::Store> temporary_base(const EvalRunOptions& options, const ModelSetup& setup) {
  fs::path scratch = fs::absolute(options.scratch);
  while (!fs::is_directory(scratch) && scratch.has_relative_path()) scratch = scratch.parent_path();
  const uint64_t need = offload::StoreGeometry(setup.layout).base_bytes(0) + kStoreOverhead, have = io::free_space(scratch);
  if (need > have)
    base::fail(base::ErrorKind::disk,
               "evaluation needs {} in {} for the weights, while it runs; {} is free. Free some, or set run.dir to a folder on a larger "
               "drive", base::format_bytes(need), scratch.string(), base::format_bytes(have));
  std::string folder = (scratch / ".sluice-eval-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr)
    base::fail(base::ErrorKind::disk, "cannot make a temporary folder in {}: {}", scratch.string(), std::strerror(errno));
  struct Remove {
    fs::path path;
    ~Remove() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  } const remove{folder};
  offload::StoreOptions store;
  store.run_dir = folder;
  store.durable = offload::Durable::none;  // one slot, empty
  store.strict = options.runtime.queue.strict;
  store.model_digest = setup.reader.digest();
  const uint64_t tiles = setup.layout.tiles().size();
  uint64_t done = 0;
  return offload::Store::create(store, setup.layout, {},
                                [&](const offload::Tile& tile, std::span<std::byte> weights, std::span<std::byte> lo) {
                                  fill_tile(setup.reader, setup.layout, tile, weights, lo);
                                  if (options.progress) options.progress("reading the model", ++done, tiles);
                                });
}

StepOptions step_options(const EvalRunOptions& o, int64_t hidden) {
  StepOptions s;
  s.weights = o.plan.weights;
  s.state = offload::Tier::nvme;
  s.micro_batches = o.accumulation;
  s.micro_batch = o.micro_batch;
  s.sequence = o.sequence;
  s.hidden = static_cast<uint32_t>(hidden);
  s.training = false;
  return s;
}

void check_host_budget(const StepShape& shape, uint64_t have) {
  const uint64_t need = total(shape.rows(), "host");
  if (need > have)
    base::fail(base::ErrorKind::host_memory,
               "evaluation needs {} of host memory but memory.host is {}: set it to at least {}, put the weights on nvme, or lower "
               "execution.pools", base::format_bytes(need), base::format_bytes(have), need);
}

void check_device_budget(const StepShape& shape, uint64_t temporaries, const Runtime& runtime) {
  const uint64_t need = total(shape.rows(), "gpu") + runtime.stream_bytes + temporaries, have = runtime.device->budget().limit();
  if (need > have)
    base::fail(base::ErrorKind::device_memory,
               "evaluation needs {}{} of device memory but memory.gpu is {}: raise it, or lower train_micro_batch_size_per_gpu or "
               "data.sequence_length", base::format_bytes(need), temporaries == 0 ? " and room for temporaries" : "",
               base::format_bytes(have));
}

// The temporaries of LibTorch, counted where they fit.
uint64_t count_temporaries(const ModelSetup& setup, const StepShape& shape, StepBuffers& buffers, Runtime& runtime) {
  try {
    return measure_temporaries(*setup.model, shape, buffers, *runtime.device, *runtime.compute, {.training = false});
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::device_memory) throw;
    base::fail(base::ErrorKind::device_memory,
               "memory.gpu is {}: {} go to arenas, and LibTorch's temporaries do not fit in the rest ({}). Raise memory.gpu, or lower "
               "train_micro_batch_size_per_gpu or data.sequence_length",
               base::format_bytes(runtime.device->budget().limit()), base::format_bytes(total(shape.rows(), "gpu")), error.what());
  }
}

}  // namespace

EvalResult evaluate(const EvalRunOptions& options) {
  ModelSource source = options.model;
  if (options.run_dir.empty()) source.trainable.clear();
  source.world = 1;  // this process reads what all ranks have written
  ModelSetup setup(source);
  std::unique_ptr<offload::Store> store;
  if (!options.run_dir.empty()) {
    store = offload::Store::open_read_only(options.run_dir, setup.layout, nullptr, options.storage, options.runtime.queue.strict);
    setup.layout = store->layout().joined();
  }
  const auto vocab = static_cast<uint64_t>(setup.reader.config().vocab);
  const TokenFile file = TokenFile::open(options.tokens, expect_tokens_of(options.model.path, vocab));
  const Packing data(file, PackingOptions{.seed = 0, .sequence = options.sequence, .shuffle = false});

  offload::PlanOptions plan_options = options.plan;
  plan_options.micro_batches = options.accumulation;
  plan_options.resident_blocks = 0;  // of a training run
  const offload::Plan plan = offload::build_eval_plan(setup.layout, plan_options);
  check_plan(plan);
  const StepShape shape(setup.layout, step_options(options, setup.reader.config().hidden), ring_sizes({&plan}));
  Runtime runtime(options.runtime);
  check_host_budget(shape, runtime.host.limit());
  check_device_budget(shape, 0, runtime);
  StepBuffers buffers(shape, *runtime.device, runtime.host);
  const uint64_t temporaries = count_temporaries(setup, shape, buffers, runtime);
  check_device_budget(shape, temporaries, runtime);

  if (!store) store = temporary_base(options, setup);
  const std::vector<std::span<std::byte>> regions = buffers.host_regions();
  runtime.queue->register_memory(regions);
  const int slot = store->published();
  load_homes(shape, buffers, *store, slot, runtime, {});
  Evaluator evaluator(runtime, *setup.model, shape, buffers, *store, plan);
  return evaluator.run(data, slot, [&](uint64_t done, uint64_t all) {
    if (options.progress) options.progress("evaluating", done, all);
  });
}

}  // namespace sluice::engine
