// Plans of several ranks.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "offload/plan_follow_up.h"
#include "tests/offload/random_plans.h"

namespace sluice::offload {
namespace {

struct Collective {
  OpKind kind;
  int32_t block;
  bool tied_part;
  Visit visit;
  bool operator==(const Collective&) const = default;
};

std::vector<Collective> collectives(const Plan& plan) {
  std::vector<Collective> all;
  for (uint32_t i : plan.order[static_cast<size_t>(Lane::comm)])
    all.push_back({plan.ops[i].kind, plan.ops[i].block, plan.ops[i].tied_part, plan.ops[i].visit});
  return all;
}

size_t count(const Plan& plan, OpKind kind) {
  return static_cast<size_t>(
      std::count_if(plan.ops.begin(), plan.ops.end(), [&](const Op& op) { return op.kind == kind; }));
}

RC_GTEST_PROP(RankPlans, PassTheCheckAndMakeTheSameCollectives, ()) {
  const auto world = *rc::gen::inRange(2u, 5u);
  const Layout layout(random_model(), Schema::bf16, kSmallTile, world);
  PlanOptions o = random_options(world);
  o.rank = 0;
  const std::vector<Collective> first = collectives(build_train_plan(layout, o));
  for (; o.rank < world; ++o.rank) {
    const Plan plan = build_train_plan(layout, o);
    check_plan(plan);
    RC_ASSERT(collectives(plan) == first);
    for (const Plan& follow_up : {build_settle_plan(layout, o, plan), build_redo_plan(layout, o, plan)}) {
      if (!follow_up.ops.empty()) check_plan(follow_up);
      RC_ASSERT(collectives(follow_up).empty());
    }
    check_plan(build_eval_plan(layout, o));
  }
}

// Together the ranks update every tile: once each, in stage 0 every rank all of them.
RC_GTEST_PROP(RankPlans, UpdateEveryTile, ()) {
  const auto world = *rc::gen::inRange(2u, 5u);
  const Layout layout(random_model(), Schema::bf16, kSmallTile, world);
  PlanOptions o = random_options(world);
  std::map<int32_t, uint32_t> updates;
  for (o.rank = 0; o.rank < world; ++o.rank)
    for (const Op& op : build_train_plan(layout, o).ops)
      if (op.kind == OpKind::update) ++updates[op.tile];
  for (uint32_t t = 0; t < layout.tiles().size(); ++t)
    if (layout.tiles()[t].trainable)
      RC_ASSERT(updates[static_cast<int32_t>(t)] == (o.zero_stage == 0 ? world : 1u));
}

// Bytes that the ranks receive in all: M to gather the weights once, M to reduce a gradient (the tied matrix has two).
RC_GTEST_PROP(RankPlans, MoveWhatTheFormulaSays, ()) {
  const auto world = *rc::gen::inRange(2u, 5u);
  const Layout layout(random_model(), Schema::bf16, kSmallTile, world);
  PlanOptions o = random_options(world);
  o.keep_weights = o.keep_graphs = 0;
  const uint64_t others = world - 1;
  uint64_t gathered = 0, updated = 0, reduced = 0;
  for (o.rank = 0; o.rank < world; ++o.rank)
    for (const Op& op : build_train_plan(layout, o).ops) {
      if (op.kind == OpKind::gather) gathered += op.bytes;
      if (op.kind == OpKind::gather_updated) updated += op.bytes;
      if (op.kind == OpKind::reduce) reduced += op.bytes;
    }
  uint64_t trainable = 0, tied = 0, visits = 0;
  const size_t head = layout.blocks().size() - 1;
  for (size_t b = 0; b <= head; ++b) {
    const BlockPlace& block = layout.blocks()[b];
    trainable += block.trainable;
    if (b == 0 && layout.tied()) tied = block.trainable;
    const bool twice = b > 0 && b < head && b >= layout.lowest_trainable_block().value();
    visits += (block.trainable + block.frozen) * (twice ? 2 : 1);
  }
  RC_ASSERT(reduced == others * (trainable + tied) * 2 * (o.zero_stage == 0 ? 2 : 1));
  RC_ASSERT(gathered == (o.zero_stage == 3 ? others * visits * 2 : 0));
  RC_ASSERT(updated == (o.zero_stage == 1 || o.zero_stage == 2 ? others * trainable * 2 : 0));
}

TEST(RankPlans, AreTheOldOnesForOneRank) {
  const Layout layout = small_layout(4, 2, 0, 3);
  const Plan plan = build_train_plan(layout, {});
  for (OpKind kind : {OpKind::gather, OpKind::gather_updated, OpKind::reduce}) EXPECT_EQ(count(plan, kind), 0u);
}

}  // namespace
}  // namespace sluice::offload
