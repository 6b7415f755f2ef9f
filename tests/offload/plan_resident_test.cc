// Blocks that stay on the device with their state.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <vector>

#include "base/error.h"
#include "offload/plan_follow_up.h"
#include "offload/simulator.h"
#include "tests/offload/random_plans.h"
#include "tests/offload/simulated_machines.h"

namespace sluice::offload {
namespace {

PlanOptions resident_options(uint32_t world = 1) {
  PlanOptions o = random_options(world);
  o.commit = false;
  o.write_weights = o.weights == Tier::nvme || (o.weights == Tier::none && o.state == Tier::nvme);
  o.write_state = o.state == Tier::nvme;
  o.resident_blocks = *rc::gen::inRange(1u, 9u);
  return o;
}

RC_GTEST_PROP(ResidentBlocks, PassTheCheck, ()) {
  const auto world = *rc::gen::inRange(1u, 4u);
  const Layout layout(random_model(), Schema::bf16, kSmallTile, world);
  PlanOptions o = resident_options(world);
  const Plan plan = build_train_plan(layout, o);
  check_plan(plan);
  for (const Plan& follow_up : {build_settle_plan(layout, o, plan), build_redo_plan(layout, o, plan)})
    if (!follow_up.ops.empty()) check_plan(follow_up);
  check_plan(build_eval_plan(layout, o));
}

// Nothing of them crosses a link or reaches the disk; the others are planned as without them.
RC_GTEST_PROP(ResidentBlocks, MoveNothing, ()) {
  const Layout layout(random_model(), Schema::bf16, kSmallTile);
  PlanOptions o = resident_options();
  const uint32_t blocks = o.resident_blocks;
  const Plan plan = build_train_plan(layout, o), settle = build_settle_plan(layout, o, plan);
  o.resident_blocks = 0;
  const Plan streamed = build_train_plan(layout, o);
  const auto bytes_of = [](const Plan& p, bool first, uint32_t n) {
    std::array<uint64_t, kLanes> sums{};
    for (const Op& op : p.ops)
      if (op.tile >= 0 && (static_cast<uint32_t>(op.block) < n) == first) sums[static_cast<size_t>(op.lane)] += op.bytes;
    return sums;
  };
  RC_ASSERT(bytes_of(plan, false, blocks) == bytes_of(streamed, false, blocks));
  const auto own = bytes_of(plan, true, blocks);
  for (size_t lane = 0; lane < kLanes; ++lane)
    RC_ASSERT(lane == static_cast<size_t>(Lane::update) || own[lane] == 0);
  for (const Plan* p : {&plan, &settle})
    for (const Op& op : p->ops)
      if (op.tile >= 0) RC_ASSERT(op.on_device == (static_cast<uint32_t>(op.block) < blocks));
  for (const Op& op : settle.ops) RC_ASSERT(!op.on_device || op.lane == Lane::update || op.bytes == 0);
}

TEST(ResidentBlocks, CannotBeCommittedEveryStep) {
  PlanOptions o;
  o.resident_blocks = 1;
  try {
    build_train_plan(small_layout(2, 2, 0, 3), o);
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), base::ErrorKind::config);
    EXPECT_NE(std::string(error.what()).find("storage.durable"), std::string::npos);
  }
}

// On a device with fast memory every resident block makes a step that copies bind shorter.
TEST(ResidentBlocks, MakeAStepShorter) {
  const Layout layout = small_layout(3, 8, 0, 6);
  Machine m = round_machine();
  m.h2d = m.d2h = 1e8;
  m.device_memory_rate = 1e12;
  PlanOptions o;
  o.weights = o.state = Tier::cpu;
  o.write_weights = o.write_state = o.commit = false;
  o.placement = Placement::forward;
  std::vector<double> seconds;
  for (o.resident_blocks = 0; o.resident_blocks <= 8; ++o.resident_blocks)
    seconds.push_back(simulate(build_train_plan(layout, o), m, flops_of_seconds(m, 1e-5)).step_seconds);
  for (size_t blocks = 1; blocks < seconds.size(); ++blocks) EXPECT_LE(seconds[blocks], 1.001 * seconds[blocks - 1]) << blocks;
  EXPECT_LT(seconds.back(), .1 * seconds.front());
}

}  // namespace
}  // namespace sluice::offload
