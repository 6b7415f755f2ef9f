// Block inputs on the host.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <utility>

#include "tests/offload/random_plans.h"

namespace sluice::offload {
namespace {

// Every backward of a layer has its input: loaded, or left on the device with its graph.
RC_GTEST_PROP(HostBoundaries, ComeBackForEveryBackward, ()) {
  const Layout layout(random_model(), Schema::bf16, kSmallTile);
  PlanOptions o = random_options();
  o.host_boundary_bytes = 4096;
  const Plan plan = build_train_plan(layout, o);
  check_plan(plan);
  const auto head = static_cast<int32_t>(layout.blocks().size() - 1);
  std::map<std::pair<int32_t, int32_t>, int> saved, loaded, wanted;
  for (const Op& op : plan.ops) {
    const std::pair place(op.block, op.micro);
    if (op.kind == OpKind::save_boundary) ++saved[place];
    if (op.kind == OpKind::load_boundary) ++loaded[place];
    if (op.kind == OpKind::backward && op.block > 0 && op.block + static_cast<int64_t>(o.keep_graphs) < head) ++wanted[place];
    RC_ASSERT(find_use(op, Ring::boundary_back) == nullptr || op.kind == OpKind::backward || op.kind == OpKind::load_boundary);
  }
  RC_ASSERT(saved == wanted);
  RC_ASSERT(loaded == wanted);
  for (const auto& [place, times] : wanted) RC_ASSERT(times == 1);
}

// What stays on the device does not grow with the number of layers.
TEST(HostBoundaries, TakeTheSameDeviceMemoryForAnyDepth) {
  const auto buffers = [](int layers) {
    PlanOptions o;
    o.host_boundary_bytes = 4096;
    o.micro_batches = 3;
    const Plan plan = build_train_plan(small_layout(1, 1, 1, layers), o);
    uint32_t n = 0;
    for (Ring ring : {Ring::boundary_even, Ring::boundary_odd, Ring::boundary_back})
      n += plan.rings[static_cast<size_t>(ring)].size;
    return n;
  };
  EXPECT_EQ(buffers(40), 2u * 3 + 2);
  EXPECT_EQ(buffers(4), buffers(40));
}

}  // namespace
}  // namespace sluice::offload
