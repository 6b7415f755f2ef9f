// Properties of plans over random models and options.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "offload/plan_builder.h"
#include "tests/offload/random_plans.h"

namespace sluice::offload {
namespace {

std::vector<uint32_t> find(const Plan& plan, OpKind kind, int32_t tile = -1) {
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < plan.ops.size(); ++i)
    if (plan.ops[i].kind == kind && (tile < 0 || plan.ops[i].tile == tile)) found.push_back(i);
  return found;
}

size_t count(const Plan& plan, OpKind kind, uint32_t tile, Visit visit) {
  const auto all = find(plan, kind, static_cast<int32_t>(tile));
  return static_cast<size_t>(
      std::count_if(all.begin(), all.end(), [&](uint32_t i) { return plan.ops[i].visit == visit; }));
}

uint32_t kept_layers(const PlanOptions& o) {
  return std::max(o.keep_weights, o.keep_graphs);
}

RC_GTEST_PROP(PlanProperty, TrainPlansPassTheCheckWithDefaultPools, ()) {
  const Layout layout(random_model(), Schema::bf16, kSmallTile);
  check_plan(build_train_plan(layout, random_options()));
}

RC_GTEST_PROP(PlanProperty, EveryTrainableTileIsUpdatedOnceAndFrozenOnesNever, ()) {
  const Layout layout(random_model(), Schema::bf16, kSmallTile);
  const PlanOptions o = random_options();
  const Plan plan = build_train_plan(layout, o);
  RC_ASSERT(find(plan, OpKind::gate).size() == 1);
  for (uint32_t t = 0; t < layout.tiles().size(); ++t) {
    const Tile& tile = layout.tiles()[t];
    const size_t once = tile.trainable ? 1 : 0;
    const auto index = static_cast<int32_t>(t);
    RC_ASSERT(find(plan, OpKind::norm, index).size() == once);
    RC_ASSERT(find(plan, OpKind::update, index).size() == once);
    RC_ASSERT(find(plan, OpKind::write_weights, index).size() == (o.write_weights ? once : 0));
    RC_ASSERT(find(plan, OpKind::write_state, index).size() == (o.write_state ? once : 0));
    RC_ASSERT(find(plan, OpKind::read_state, index).size() == (state_on_disk(layout, o, t) ? once : 0));
    RC_ASSERT(find(plan, OpKind::copy_out, index).size() ==
              once * (layout.tied() && tile.block == 0 ? 2 : 1));
    RC_ASSERT(count(plan, OpKind::copy_in, t, Visit::update) == (o.weights == Tier::none ? once : 0));
  }
}

RC_GTEST_PROP(PlanProperty, EveryComputationHasTheWholeBlock, ()) {
  const Layout layout(random_model(), Schema::bf16, kSmallTile);
  const PlanOptions o = random_options();
  const Plan plan = build_train_plan(layout, o);
  const auto head = static_cast<uint32_t>(layout.blocks().size() - 1);
  const uint32_t lowest = layout.lowest_trainable_block().value();
  for (uint32_t t = 0; t < layout.tiles().size(); ++t) {
    const uint32_t b = layout.tiles()[t].block;
    const bool streamed = o.weights != Tier::none;
    const bool kept = b >= lowest && b + kept_layers(o) >= head;
    const bool again = streamed && b > 0 && b < head && b >= lowest && !kept;
    RC_ASSERT(count(plan, OpKind::copy_in, t, Visit::forward) == (streamed && b < head ? 1u : 0u));
    RC_ASSERT(count(plan, OpKind::copy_in, t, Visit::loss) == (streamed && b == head ? 1u : 0u));
    RC_ASSERT(count(plan, OpKind::copy_in, t, Visit::backward) == (again ? 1u : 0u));
    // On NVMe a visit reads the tile, but for a deferred one, which is there for its Update; a held one is
    // not read again.
    if (o.weights == Tier::nvme && t >= o.pinned_tiles) {
      const size_t first = b < head ? count(plan, OpKind::read_weights, t, Visit::forward)
                                    : count(plan, OpKind::read_weights, t, Visit::loss);
      RC_ASSERT(first <= 1u);
      RC_ASSERT(count(plan, OpKind::read_weights, t, Visit::backward) == (again ? 1u : 0u));
      if (layout.tiles()[t].trainable) {
        RC_ASSERT(first + count(plan, OpKind::read_weights, t, Visit::update) >= 1u);
      } else {
        RC_ASSERT(first == 1u && count(plan, OpKind::read_weights, t, Visit::update) == 0u);
      }
    }
  }
  std::map<std::pair<OpKind, int32_t>, std::vector<int32_t>> micro;
  for (uint32_t i : plan.order[static_cast<size_t>(Lane::compute)]) {
    const Op& op = plan.ops[i];
    micro[{op.kind, op.block}].push_back(op.micro);
    RC_ASSERT(op.last_micro == (op.micro + 1 == static_cast<int32_t>(o.micro_batches)));
  }
  std::vector<int32_t> all;
  for (uint32_t j = 0; j < o.micro_batches; ++j) all.push_back(static_cast<int32_t>(j));
  RC_ASSERT(micro.size() == head + 1 + (head - lowest));
  for (const auto& [what, list] : micro) RC_ASSERT(list == all);
}

RC_GTEST_PROP(PlanProperty, UpdateHasAllThatItNeeds, ()) {
  const Layout layout(random_model(), Schema::bf16, kSmallTile);
  const PlanOptions o = random_options();
  const Plan plan = build_train_plan(layout, o);
  for (uint32_t i : find(plan, OpKind::update)) {
    const Op& op = plan.ops[i];
    const bool tied = layout.tied() && op.block == 0;
    RC_ASSERT(find_use(op, Ring::gradients) != nullptr);
    RC_ASSERT((find_use(op, Ring::tied_gradients) != nullptr) == tied);
    RC_ASSERT((find_use(op, Ring::state) != nullptr) == state_on_disk(layout, o, static_cast<uint32_t>(op.tile)));
    RC_ASSERT((find_use(op, {Ring::weights_held, Ring::weights}) != nullptr) ==
              master_on_disk(layout, o, static_cast<uint32_t>(op.tile)));
    const bool deferred = find_use(op, Ring::gradients)->periods == 1;
    if (o.placement == Placement::none) RC_ASSERT(!deferred);
    if (o.placement == Placement::forward) RC_ASSERT(deferred);
    const bool shadow = has_shadow(layout, o, static_cast<uint32_t>(op.tile));
    if (!o.commit && !shadow && o.placement != Placement::none) RC_ASSERT(deferred);  // no spare, no guess
    if (shadow && o.placement == Placement::backward) RC_ASSERT(!deferred);
    RC_ASSERT(op.shadow == (shadow && !deferred ? Shadow::save : Shadow::none));
  }
}

RC_GTEST_PROP(PlanProperty, TiersMoveOnlyWhatTheyMust, ()) {
  const Layout layout(random_model(), Schema::bf16, kSmallTile);
  const PlanOptions o = random_options();
  const Plan plan = build_train_plan(layout, o);
  const auto lane = [&](Lane l) { return plan.order[static_cast<size_t>(l)].size(); };
  const bool disk = o.weights == Tier::nvme || o.state == Tier::nvme;
  if (!disk) RC_ASSERT(lane(Lane::disk_weights) == 0);
  if (o.state != Tier::nvme) RC_ASSERT(lane(Lane::disk_state) == 0);
  RC_ASSERT(lane(Lane::commit) == (o.commit ? 3u : 0u));
  for (size_t r = 0; r < kRings; ++r) {
    RC_ASSERT((plan.rings[r].size == 0) == (plan.rings[r].acquisitions == 0));
    RC_ASSERT(plan.rings[r].size <= plan.rings[r].acquisitions);
  }
}

RC_GTEST_PROP(PlanProperty, EvaluationReadsEachTileOnceAndChangesNothing, ()) {
  const Layout layout(random_model(), Schema::bf16, kSmallTile);
  PlanOptions o;
  o.weights = *rc::gen::element(Tier::none, Tier::cpu, Tier::nvme);
  o.micro_batches = *rc::gen::inRange(1u, 4u);
  const Plan plan = build_eval_plan(layout, o);
  check_plan(plan);
  std::set<OpKind> kinds;
  for (const Op& op : plan.ops) kinds.insert(op.kind);
  kinds.erase(OpKind::read_weights);
  kinds.erase(OpKind::copy_in);
  RC_ASSERT(kinds == (std::set<OpKind>{OpKind::forward, OpKind::loss}));
  for (uint32_t t = 0; t < layout.tiles().size(); ++t) {
    RC_ASSERT(find(plan, OpKind::read_weights, static_cast<int32_t>(t)).size() ==
              (o.weights == Tier::nvme ? 1u : 0u));
    RC_ASSERT(find(plan, OpKind::copy_in, static_cast<int32_t>(t)).size() ==
              (o.weights != Tier::none ? 1u : 0u));
  }
}

// Pinning costs what it says: one byte less, one tile less.
RC_GTEST_PROP(PlanProperty, PinnedTilesFitTheBytes, ()) {
  const Layout layout(random_model(), Schema::bf16, kSmallTile);
  PlanOptions o = random_options();
  o.pinned_tiles = 0;
  uint64_t bytes = 0;
  for (uint32_t t = 0; t < layout.tiles().size(); ++t) {
    const Tile& tile = layout.tiles()[t];
    uint64_t own = 0;
    if (o.weights == Tier::nvme) own += layout.weights_extent_bytes(tile);
    if (o.state == Tier::nvme && tile.trainable)
      own += layout.state_extent_bytes(tile) + (o.weights == Tier::none ? layout.weights_extent_bytes(tile) : 0);
    bytes += own;
    RC_ASSERT(count_pinned(layout, o, bytes) >= t + 1);
    if (own > 0) RC_ASSERT(count_pinned(layout, o, bytes - 1) <= t);
  }
}

}  // namespace
}  // namespace sluice::offload
