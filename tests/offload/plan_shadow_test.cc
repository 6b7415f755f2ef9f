// Tiles in RAM that keep a copy of their old state, so that they can be updated on a guess where nothing is committed each step.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "offload/plan_follow_up.h"
#include "tests/offload/random_plans.h"

namespace sluice::offload {
namespace {

PlanOptions shadow_options(uint32_t world = 1) {
  PlanOptions o = random_options(world);
  o.weights = o.zero_stage == 1 || o.zero_stage == 2 ? Tier::none : *rc::gen::element(Tier::none, Tier::cpu);
  o.state = Tier::cpu;
  o.commit = o.write_weights = o.write_state = false;
  o.placement = *rc::gen::element(Placement::backward, Placement::spread);
  o.resident_blocks = *rc::gen::element(0u, 0u, 2u);
  return o;
}

RC_GTEST_PROP(Shadows, PassTheCheck, ()) {
  const auto world = *rc::gen::inRange(1u, 4u);
  const Layout layout(random_model(), Schema::bf16, kSmallTile, world);
  const PlanOptions o = shadow_options(world);
  const Plan plan = build_train_plan(layout, o);
  check_plan(plan);
  for (const Plan& follow_up : {build_settle_plan(layout, o, plan), build_redo_plan(layout, o, plan)})
    if (!follow_up.ops.empty()) check_plan(follow_up);
}

// Nothing of them is on disk: what was saved is taken back, and nothing else is made again.
RC_GTEST_PROP(Shadows, ARedoTakesBackWhatWasSaved, ()) {
  const Layout layout(random_model(), Schema::bf16, kSmallTile);
  const PlanOptions o = shadow_options();
  const Plan plan = build_train_plan(layout, o), redo = build_redo_plan(layout, o, plan);
  std::vector<int32_t> saved, restored;
  for (const Op& op : plan.ops) {
    RC_ASSERT(!is_disk_lane(op.lane));
    if (op.shadow == Shadow::save) saved.push_back(op.tile);
    if (op.kind == OpKind::update) RC_ASSERT(op.previous_step != (op.shadow == Shadow::save));
  }
  for (const Op& op : redo.ops) {
    RC_ASSERT(!is_disk_lane(op.lane));
    if (op.kind == OpKind::update) RC_ASSERT(op.shadow == Shadow::restore);
    if (op.shadow == Shadow::restore) restored.push_back(op.tile);
  }
  std::sort(saved.begin(), saved.end());
  std::sort(restored.begin(), restored.end());
  RC_ASSERT(saved == restored);
}

// The last tiles, whose gradients come first, as many as the bytes hold.
RC_GTEST_PROP(Shadows, TakeNoMoreThanTheirBytes, ()) {
  const Layout layout(random_model(), Schema::bf16, kSmallTile);
  PlanOptions o = shadow_options();
  const auto bytes = *rc::gen::inRange<uint64_t>(0, 40 << 20);
  o.first_shadow = first_shadow(layout, o, bytes);
  uint64_t used = 0, next = 0;
  for (uint32_t t = 0; t < layout.tiles().size(); ++t) {
    const Tile& tile = layout.tiles()[t];
    const uint64_t extents = layout.weights_extent_bytes(tile) + layout.state_extent_bytes(tile);
    const bool can = tile.trainable && tile.block >= o.resident_blocks;
    if (has_shadow(layout, o, t)) {
      RC_ASSERT(can);
      used += extents;
    } else if (can) {
      next = extents;  // of the last one without
    }
  }
  RC_ASSERT(used <= bytes);
  RC_ASSERT(next == 0 || used + next > bytes);
}

TEST(Shadows, AreOfNoUseBesideCommitsAndOnDisk) {
  const Layout layout({.blocks = {{BlockKind::embedding, {{"e", {4, 4}}}}, {BlockKind::layer, {{"a", {4, 4}}}}, {BlockKind::head, {{"n", {4}}}}}, .tied = true},
                      Schema::bf16, kLeafElements);
  PlanOptions o;
  o.weights = o.state = Tier::cpu;
  o.commit = false;
  o.placement = Placement::backward;
  o.first_shadow = 0;
  EXPECT_TRUE(has_shadow(layout, o, 1));
  for (const Placement deferred : {Placement::none, Placement::forward}) {
    o.placement = deferred;
    EXPECT_FALSE(has_shadow(layout, o, 1));
  }
  o.placement = Placement::backward;
  o.commit = true;
  EXPECT_FALSE(has_shadow(layout, o, 1));
  o.commit = false;
  o.state = Tier::nvme;
  EXPECT_FALSE(has_shadow(layout, o, 1));
}

}  // namespace
}  // namespace sluice::offload
