#include "engine/run_plan.h"

#include <algorithm>

#include "base/units.h"
#include "engine/flops.h"
#include "engine/temporaries.h"
#include "gpu/cuda_device.h"
#include "offload/plan_follow_up.h"

namespace sluice::engine {

using offload::Ring;
using offload::Tier;

namespace {

// CUDA's context, the kernels of LibTorch and cuBLAS that a run loads, and their workspaces; where they have not been measured.
constexpr uint64_t kContextBytes = 640 << 20;

// Tiles `scale` times as large, when there would be too many.
uint64_t tile_scale(const offload::Layout& layout, uint32_t most_tiles) {
  return base::ceil_div(layout.tiles().size(), std::max(1u, most_tiles));
}

// Rings that hold so much of the model have more buffers when tiles are smaller, as far as the pools that the config gives let them; the
// others hold so many tiles.
std::array<uint32_t, offload::kRings> unscaled(std::array<uint32_t, offload::kRings> sizes, const offload::PoolSizes& pools,
                                               const offload::Plan& train, uint64_t scale) {
  const auto size = [&](Ring ring) -> uint32_t& { return sizes[static_cast<size_t>(ring)]; };
  const auto planned = [&](Ring ring) { return train.rings[static_cast<size_t>(ring)].size; };
  const auto more = [&](uint32_t tiles) { return static_cast<uint32_t>(tiles * scale); };
  for (const Ring ring : {Ring::weights_held, Ring::gradients, Ring::device_gradients, Ring::tied_gradients}) size(ring) = more(size(ring));
  if (pools.gradients != 0) size(Ring::gradients) = std::min(size(Ring::gradients), pools.gradients);
  if (pools.weights == 0) return sizes;
  const uint32_t weights = planned(Ring::weights);
  if (planned(Ring::weights_held) == 0) {
    size(Ring::weights) = std::max(size(Ring::weights), std::min(pools.weights, more(weights)));
  } else {  // they share the pool
    size(Ring::weights_held) = std::min(size(Ring::weights_held), std::max(pools.weights, weights + 1) - weights);
  }
  return sizes;
}

TemporariesOptions temporaries_options(const RunPlanOptions& o, const offload::PlanOptions& plan,
                                       const offload::Layout& layout) {
  TemporariesOptions t;
  t.keep_graphs = plan.keep_graphs;
  t.lowest_trainable = layout.lowest_trainable_block().value_or(0);
  t.loss_chunk = o.trainer.model.loss_chunk;
  t.compute_threads = o.compute_threads;
  return t;
}

// Of all plans that a run has over the same buffers (TrainPlans, engine/step_runner.h, which needs LibTorch).
std::array<uint32_t, offload::kRings> shared_rings(const offload::Layout& layout,
                                                   const offload::PlanOptions& options,
                                                   const offload::Plan& train, bool adaptive) {
  const offload::Plan settle = build_settle_plan(layout, options, train),
                      redo = build_redo_plan(layout, options, train), eval = build_eval_plan(layout, options);
  std::vector<const offload::Plan*> all{&train, &settle, &redo, &eval};
  offload::Plan deferred, deferred_settle;
  if (adaptive && !redo.ops.empty()) {
    offload::PlanOptions other = options;
    other.placement = offload::Placement::forward;
    deferred = build_train_plan(layout, other);
    deferred_settle = build_settle_plan(layout, other, deferred);
    all.insert(all.end(), {&deferred, &deferred_settle});
  }
  return ring_sizes(all);
}

std::vector<MemoryRow> memory_rows(const RunPlanOptions& o, const offload::PlanOptions& options,
                                   const StepShape& shape, bool coarse) {
  std::vector<MemoryRow> rows = shape.rows();
  if (coarse)  // rings that hold much of the model
    for (MemoryRow& row : rows)
      row.estimated = row.place == "host" || (row.purpose == "gradients" && shape.some_state_on_device());
  MemoryRow temporaries{"gpu", "temporaries"};
  temporaries.bytes = estimate_temporaries(o.config, shape, temporaries_options(o, options, shape.layout()));
  temporaries.estimated = true;
  rows.push_back(temporaries);
  const uint64_t streams = shape.several_ranks() ? 5 : 4;  // of Runtime: compute, h2d, d2h, update; comm
  if (o.gpu) rows.push_back({"gpu", "streams", streams * gpu::kCudaStreamBytes});
  const uint64_t runtime = o.machine.runtime_bytes;
  if (o.gpu) rows.push_back({"gpu", "runtime", runtime > 0 ? runtime : kContextBytes, /*measured=*/runtime > 0, /*estimated=*/runtime == 0, /*beside=*/true});
  rows.push_back({"disk", "slots", disk_need(shape.layout(), o.trainer.store.durable)});
  return rows;
}

}  // namespace

RunPlan plan_run(const RunPlanOptions& o) {
  RunPlan run;
  const ModelSource& source = o.trainer.model;
  check_sequence(o.config, o.trainer.sequence);
  const offload::ModelDesc model = describe(o.config, source);
  run.layout = std::make_unique<offload::Layout>(model, source.schema, source.tile, source.world);
  const uint64_t scale = tile_scale(*run.layout, o.most_tiles);
  if (scale > 1) run.simulated = std::make_unique<offload::Layout>(model, source.schema, source.tile * scale, source.world);

  const offload::PlanOptions options = train_plan_options(o.trainer, run.planned_layout(), o.config.hidden);
  run.plan = offload::build_train_plan(run.planned_layout(), options);
  const StepShape shape(
      *run.layout,
      step_options(o.trainer, *run.layout, o.config.hidden, train_plan_options(o.trainer, *run.layout, o.config.hidden)),
      unscaled(shared_rings(run.planned_layout(), options, run.plan, o.trainer.guess_limit.has_value()), options.pools, run.plan, scale));
  run.memory = memory_rows(o, options, shape, scale > 1);
  run.commit_bytes = commit_bytes(shape, o.trainer.store.durable);
  run.load_bytes = load_bytes(shape);
  if (o.memory_only) return run;

  check_plan(run.plan);
  const StepFlops flops{*run.layout, o.config, o.trainer.micro_batch, o.trainer.sequence,
                        options.keep_graphs};
  run.simulation =
      simulate(run.plan, o.machine, [&](const offload::Op& op) { return flops.of(op); }, {.spans = o.spans});
  if (o.evaluates)
    run.evaluation = simulate(build_eval_plan(run.planned_layout(), options), o.machine, [&](const offload::Op& op) {
      return op.kind == offload::OpKind::loss ? flops.loss(/*training=*/false) : flops.of(op);
    });
  return run;
}

}  // namespace sluice::engine
