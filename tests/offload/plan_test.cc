#include "offload/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "offload/plan_builder.h"
#include "tests/offload/plan_models.h"

namespace sluice::offload {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Plan, NamesSayKindBlockAndTile) {
  const Plan plan = build_train_plan(small_layout(2, 2, 0, 2), {});
  std::set<std::string> names;
  for (uint32_t i = 0; i < plan.ops.size(); ++i)
    EXPECT_TRUE(names.insert(plan.name(i)).second) << plan.name(i);
  for (const char* name :
       {"ReadWeights 1.1 forward", "ReadWeights 1.1 backward", "ReadWeights 1.1 update", "ReadState 2.0",
        "CopyIn 3.0 loss", "Forward 0.0", "Loss 3.0", "Backward 2.0", "CopyOut 0.1 tied", "CopyOut 0.1",
        "Norm 2.1", "Gate", "Update 3.0", "WriteWeights 1.0", "WriteState 1.0", "Flush", "Agree", "Publish"})
    EXPECT_EQ(names.count(name), 1u) << name;
}

TEST(Plan, RingsRotateOverThePeriods) {
  Plan plan;
  plan.rings[static_cast<size_t>(Ring::state)] = {3, 2};
  EXPECT_EQ(plan.buffer({Ring::state, 0, 0}, 0), 0u);
  EXPECT_EQ(plan.buffer({Ring::state, 1, 0}, 0), 1u);
  EXPECT_EQ(plan.buffer({Ring::state, 2, 0}, 0), 0u);
  EXPECT_EQ(plan.buffer({Ring::state, 0, 0}, 1), 1u);
  EXPECT_EQ(plan.buffer({Ring::state, 2, 1}, 5), plan.buffer({Ring::state, 2, 0}, 4));
}

TEST(Plan, FindsUsesByRing) {
  Op op;
  op.uses = {{Ring::weights, 4, 0}, {Ring::state, 2, 0}};
  EXPECT_EQ(find_use(op, Ring::state)->acquisition, 2u);
  EXPECT_EQ(find_use(op, Ring::gradients), nullptr);
  EXPECT_EQ(find_use(op, {Ring::weights_held, Ring::weights})->acquisition, 4u);
  EXPECT_EQ(find_use(op, {Ring::weights_held, Ring::gradients}), nullptr);
}

Plan two_reads() {
  Plan plan;
  for (int i = 0; i < 2; ++i) {
    Op op;
    op.kind = OpKind::read_state;
    op.lane = Lane::disk_state;
    op.tile = i;
    op.key = {0, 0, static_cast<float>(1 - i)};
    op.uses = {{Ring::state, static_cast<uint32_t>(i), 0}};
    op.acquires = 1;
    plan.ops.push_back(op);
  }
  return plan;
}

TEST(Plan, OrderFollowsTheKeysAndNumbersAcquisitions) {
  Plan plan = two_reads();
  order_plan(plan);
  EXPECT_EQ(plan.order[static_cast<size_t>(Lane::disk_state)], (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(plan.ops[1].uses[0].acquisition, 0u);
  EXPECT_EQ(plan.ops[0].uses[0].acquisition, 1u);
  EXPECT_EQ(plan.rings[static_cast<size_t>(Ring::state)].acquisitions, 2u);
}

TEST(Plan, OrderRefusesWhatIsNotATotalOrder) {
  Plan plan = two_reads();
  plan.ops[0].key = plan.ops[1].key;
  EXPECT_THAT([&] { order_plan(plan); }, ThrowsMessage<base::Error>(HasSubstr("same key")));
  plan = two_reads();
  plan.ops[0].lane = Lane::disk_weights;
  EXPECT_THAT([&] { order_plan(plan); }, ThrowsMessage<base::Error>(HasSubstr("acquired by two lanes")));
  plan = two_reads();
  plan.ops[0].uses[0].acquisition = 1;
  EXPECT_THAT([&] { order_plan(plan); }, ThrowsMessage<base::Error>(HasSubstr("acquired already")));
  plan = two_reads();
  plan.ops[0].acquires = 0;
  EXPECT_THAT([&] { order_plan(plan); }, ThrowsMessage<base::Error>(HasSubstr("nothing acquires")));
}

}  // namespace
}  // namespace sluice::offload
