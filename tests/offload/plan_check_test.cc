#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "offload/plan_builder.h"
#include "offload/plan_order.h"
#include "offload/ring_edges.h"
#include "tests/offload/plan_models.h"

namespace sluice::offload {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

RingInfo& ring(Plan& plan, Ring r) {
  return plan.rings[static_cast<size_t>(r)];
}

PlanOptions placed(Placement placement, uint32_t micro_batches = 1) {
  PlanOptions o;
  o.placement = placement;
  o.micro_batches = micro_batches;
  return o;
}

// Changes operations of a good plan and orders it again; every ring as large as it can be used.
Plan changed(Plan plan, const std::function<void(Op&)>& change) {
  for (Op& op : plan.ops) change(op);
  order_plan(plan);
  for (RingInfo& info : plan.rings) info.size = 2 * info.acquisitions;
  return plan;
}

auto deadlocks() {
  return ThrowsMessage<base::Error>(AllOf(HasSubstr("cannot run with any ring size"), HasSubstr(" -> ")));
}
auto too_small(Ring r, uint32_t least) {
  return ThrowsMessage<base::Error>(
      HasSubstr(fmt::format("ring {} has {} buffers and needs at least {}", to_string(r), least - 1, least)));
}

// Lowers one ring until the plan is refused: it is refused by name, exactly below the least size.
void expect_least(Plan plan, Ring r, uint32_t least) {
  ASSERT_GE(ring(plan, r).acquisitions, least) << to_string(r);
  ring(plan, r).size = least;
  EXPECT_NO_THROW(check_plan(plan)) << to_string(r);
  if (least == 1) return;
  ring(plan, r).size = least - 1;
  EXPECT_THAT([&] { check_plan(plan); }, too_small(r, least));
}

TEST(PlanCheck, SmallestPoolsRunAndOneLessIsRefusedByName) {
  const Layout tied = small_layout(3, 4, 0, 3), untied = small_layout(3, 4, 6, 3);
  for (Placement placement : {Placement::none, Placement::forward, Placement::backward, Placement::spread})
    for (const Layout* layout : {&tied, &untied}) {
      SCOPED_TRACE(to_string(placement));
      const Plan plan = build_train_plan(*layout, placed(placement));
      for (Ring r : {Ring::weights, Ring::state, Ring::device_layer, Ring::grad_layer})
        expect_least(plan, r, 1);
      const uint32_t tiles = 3 + 3 * 4 + (layout->tied() ? 1 : 6);
      expect_least(plan, Ring::gradients, tiles);
      if (layout->tied()) expect_least(plan, Ring::tied_gradients, 3);
    }
  // Held tiles: those of the largest block that is visited backward, the untied head among them.
  expect_least(build_train_plan(tied, placed(Placement::backward)), Ring::weights_held, 4);
  expect_least(build_train_plan(untied, placed(Placement::backward)), Ring::weights_held, 6);
}

TEST(PlanCheck, AllSmallestPoolsTogetherRun) {
  for (const Layout& layout : {small_layout(3, 4, 0, 3), small_layout(3, 4, 6, 3)})
    for (Placement placement :
         {Placement::none, Placement::forward, Placement::backward, Placement::spread}) {
      Plan plan = build_train_plan(layout, placed(placement));
      for (Ring r : {Ring::weights, Ring::state, Ring::device_layer, Ring::grad_layer})
        ring(plan, r).size = std::min(1u, ring(plan, r).acquisitions);
      if (ring(plan, Ring::weights_held).size > 0)
        ring(plan, Ring::weights_held).size = layout.tied() ? 4 : 6;
      EXPECT_NO_THROW(check_plan(plan)) << to_string(placement);
    }
}

TEST(PlanCheck, MessageNamesTheSetting) {
  PlanOptions o = placed(Placement::none);
  o.pools.gradients = 5;
  EXPECT_THAT([&] { check_plan(build_train_plan(small_layout(3, 4, 0, 3), o)); },
              ThrowsMessage<base::Error>(HasSubstr("execution.pools.gradients")));
  try {
    check_plan(build_train_plan(small_layout(3, 4, 0, 3), o));
  } catch (const base::Error& e) {
    EXPECT_EQ(e.kind(), base::ErrorKind::config);
  }
}

// The orders that are known to deadlock (docs/design.md, "The step as a plan").

TEST(PlanCheck, FindsTwoLanesThatOrderTheTilesOfASlotDifferently) {
  const Layout layout = small_layout(8, 8, 0, 3);
  Plan plan = changed(build_train_plan(layout, placed(Placement::spread)), [](Op& op) {
    if (op.kind == OpKind::read_weights && op.visit == Visit::update && op.key.phase == 0)
      op.key.phase = 0.5f;
  });
  EXPECT_NO_THROW(check_plan(plan));
  expect_least(plan, Ring::weights, 4);  // instead of 1: the plain tiles up to the next deferred one
}

TEST(PlanCheck, FindsANormBeforeTheDeferredUpdateOfItsSlot) {
  const Plan plan =
      changed(build_train_plan(small_layout(3, 2, 4, 2), placed(Placement::forward)), [](Op& op) {
        if (op.kind == OpKind::norm && op.block == 3) op.key.phase = -2;
      });
  EXPECT_THAT([&] { check_plan(plan); }, deadlocks());
}

TEST(PlanCheck, FindsAWriteThatWaitsForPublishBeforeOneThatPublishWaitsFor) {
  const Plan plan =
      changed(build_train_plan(small_layout(3, 2, 8, 2), placed(Placement::spread)), [](Op& op) {
        if (op.kind == OpKind::write_weights && op.block == 3) op.key.phase = 0;
      });
  EXPECT_THAT([&] { check_plan(plan); }, deadlocks());
}

TEST(PlanCheck, FindsStatesAheadOfTheWeightsInOneReadLane) {
  const auto one_lane = [](int ahead) {
    return [ahead](Op& op) {
      if (op.kind == OpKind::read_state) op.lane = Lane::disk_weights, op.key.slot -= ahead, op.key.sub = 1;
    };
  };
  const Plan good = build_train_plan(small_layout(3, 2, 0, 6), placed(Placement::backward));
  Plan plan = changed(good, one_lane(0));
  ring(plan, Ring::state).size = 2;
  EXPECT_NO_THROW(check_plan(plan));
  plan = changed(good, one_lane(3));
  ring(plan, Ring::state).size = 2;
  EXPECT_THAT([&] { check_plan(plan); },
              ThrowsMessage<base::Error>(HasSubstr("ring state has 2 buffers and needs")));
}

TEST(PlanCheck, FindsWeightsFurtherAheadThanTheirRing) {
  const Plan good = build_train_plan(small_layout(3, 2, 0, 6), placed(Placement::backward));
  Plan plan = changed(good, [](Op& op) {
    if (op.kind == OpKind::read_state) op.lane = Lane::disk_weights, op.key.sub = 1;
    if (op.kind == OpKind::read_weights) op.key.slot -= 4;
  });
  ring(plan, Ring::weights_held).size = 4;
  EXPECT_THAT([&] { check_plan(plan); },
              ThrowsMessage<base::Error>(HasSubstr("ring weights_held has 4 buffers and needs")));
}

TEST(PlanCheck, FindsOneRingForBuffersOfDifferentLifetime) {
  // Gradients freed by their Update, as in a plan that replays a wrong guess from the start.
  const auto freed = [](Op& op) {
    if (op.kind == OpKind::gate) op.uses.clear();
  };
  const Plan good = build_train_plan(small_layout(3, 2, 0, 3), placed(Placement::backward));
  const Plan separate = changed(good, freed);
  const Plan mixed = changed(good, [&](Op& op) {
    freed(op);
    for (Use& use : op.uses)
      if (use.ring == Ring::tied_gradients) use = {Ring::gradients, use.acquisition + 100, use.periods};
  });
  // With the check of kept gradients out of the way, only the ring sizes decide.
  const auto runs = [](Plan plan, uint32_t size) {
    ring(plan, Ring::gradients).size = size;
    return SamePeriodGraph(plan, ring_edges(plan)).acyclic();
  };
  EXPECT_TRUE(runs(separate, 1));
  EXPECT_FALSE(runs(mixed, 3));
  EXPECT_TRUE(runs(mixed, 12));
}

TEST(PlanCheck, FindsAMalformedPlan) {
  const Plan good = build_train_plan(small_layout(2, 2, 0, 2), {});
  Plan plan = good;
  std::swap(plan.order[0][0], plan.order[0][1]);
  EXPECT_THAT([&] { check_plan(plan); }, ThrowsMessage<base::Error>(HasSubstr("by its key")));
  plan = good;
  plan.order[0].pop_back();
  EXPECT_THAT([&] { check_plan(plan); }, ThrowsMessage<base::Error>(HasSubstr("is in no lane")));
  plan = good;
  plan.ops[0].deps.push_back({static_cast<uint32_t>(plan.ops.size()), 0});
  EXPECT_THAT([&] { check_plan(plan); }, ThrowsMessage<base::Error>(HasSubstr("not there")));
  plan = good;
  plan.ops[0].deps.push_back({1, static_cast<uint32_t>(-1)});  // waits for a later period
  EXPECT_THROW(check_plan(plan), base::Error);
}

// Whatever dependency is taken out: what it ordered is ordered by something else, or the check misses it.
TEST(PlanCheck, NoticesEveryDependencyThatIsMissing) {
  size_t refused = 0;
  for (Placement placement : {Placement::none, Placement::forward, Placement::backward, Placement::spread})
    for (Tier weights : {Tier::none, Tier::cpu, Tier::nvme}) {
      PlanOptions o = placed(placement, 2);
      o.weights = weights;
      const Plan good = build_train_plan(small_layout(2, 2, weights == Tier::cpu ? 3 : 0, 2), o);
      for (uint32_t i = 0; i < good.ops.size(); ++i)
        for (size_t d = 0; d < good.ops[i].deps.size(); ++d) {
          Plan plan = good;
          const Dep dep = plan.ops[i].deps[d];
          plan.ops[i].deps.erase(plan.ops[i].deps.begin() + static_cast<std::ptrdiff_t>(d));
          const auto edges = ring_edges(plan);
          if (PlanOrder(plan, edges, SamePeriodGraph(plan, edges)).before(dep.op, i, dep.periods)) continue;
          // A choice of the placement, not a need of the data: none has all updates behind it.
          if (plan.ops[dep.op].kind == OpKind::update && plan.ops[i].kind == OpKind::forward) continue;
          EXPECT_THROW(check_plan(plan), base::Error)
              << to_string(placement) << ": " << plan.name(dep.op) << " -> " << plan.name(i);
          ++refused;
        }
    }
  EXPECT_GT(refused, 800u);
}

TEST(PlanCheck, NoticesEveryUseThatIsMissing) {
  for (Placement placement : {Placement::none, Placement::forward, Placement::backward, Placement::spread})
    for (Tier weights : {Tier::none, Tier::nvme}) {
      PlanOptions o = placed(placement, 2);
      o.weights = weights;
      o.keep_weights = 1;
      const Plan good = build_train_plan(small_layout(2, 2, weights == Tier::none ? 3 : 0, 2), o);
      for (uint32_t i = 0; i < good.ops.size(); ++i)
        for (size_t u = good.ops[i].acquires; u < good.ops[i].uses.size(); ++u) {
          Plan plan = good;
          plan.ops[i].uses.erase(plan.ops[i].uses.begin() + static_cast<std::ptrdiff_t>(u));
          EXPECT_THROW(check_plan(plan), base::Error)
              << to_string(placement) << ": " << plan.name(i) << " " << to_string(good.ops[i].uses[u].ring);
        }
    }
}

TEST(PlanCheck, FindsAnOrderThatReadsTheWrongGeneration) {
  // The read for the backward of a deferred tile, taken for one of the period before.
  Plan plan = build_train_plan(small_layout(2, 2, 0, 2), placed(Placement::forward));
  for (Op& op : plan.ops)
    if (op.kind == OpKind::read_weights && op.visit == Visit::backward)
      for (Dep& dep : op.deps) dep.periods = 1;
  EXPECT_THAT([&] { check_plan(plan); },
              ThrowsMessage<base::Error>(HasSubstr("the weights must be on disk")));
}

}  // namespace
}  // namespace sluice::offload
