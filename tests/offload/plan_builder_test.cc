#include "offload/plan_builder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/offload/plan_models.h"

namespace sluice::offload {
namespace {

struct Tiers {
  Tier weights, state;
};
constexpr Tiers kTiers[] = {{Tier::none, Tier::none}, {Tier::none, Tier::cpu}, {Tier::none, Tier::nvme},
                            {Tier::cpu, Tier::cpu},   {Tier::cpu, Tier::nvme}, {Tier::nvme, Tier::cpu},
                            {Tier::nvme, Tier::nvme}};
constexpr Placement kPlacements[] = {Placement::none, Placement::forward, Placement::backward,
                                     Placement::spread};

PlanOptions options_for(Tiers tiers, Placement placement, bool commit) {
  PlanOptions o;
  o.weights = tiers.weights;
  o.state = tiers.state;
  o.placement = placement;
  o.commit = commit && tiers.state != Tier::none;
  o.write_weights =
      o.commit || tiers.weights == Tier::nvme || (tiers.weights == Tier::none && tiers.state == Tier::nvme);
  o.write_state = o.commit || tiers.state == Tier::nvme;
  return o;
}

TEST(PlanBuilder, EveryTierPlacementAndHeadPassesTheCheck) {
  for (const Layout& layout : {small_layout(3, 2, 0, 3), small_layout(3, 2, 4, 3)})
    for (Tiers tiers : kTiers)
      for (Placement placement : kPlacements)
        for (bool commit : {true, false})
          for (uint32_t micro : {1u, 3u})
            for (uint32_t keep : {0u, 2u}) {
              PlanOptions o = options_for(tiers, placement, commit);
              o.micro_batches = micro;
              o.keep_weights = keep;
              SCOPED_TRACE(fmt::format("weights {} state {} placement {} commit {} micro {} keep {} tied {}",
                                       to_string(o.weights), to_string(o.state), to_string(placement), commit,
                                       micro, keep, layout.tied()));
              EXPECT_NO_THROW(check_plan(build_train_plan(layout, o)));
            }
}

TEST(PlanBuilder, RefusesStateOnTheDeviceWithoutTheWeights) {
  PlanOptions o = options_for({Tier::cpu, Tier::cpu}, Placement::none, false);
  o.state = Tier::none;
  try {
    build_train_plan(small_layout(2, 2, 0, 2), o);
    FAIL() << "not refused";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.kind(), base::ErrorKind::config);
    EXPECT_NE(std::string(e.what()).find("Set offload_param to none"), std::string::npos);
  }
}

TEST(PlanBuilder, RefusesAModelWithNothingToTrain) {
  ModelDesc m = model_of(kSmallTile, kSmallTile, 0, 2);
  for (BlockDesc& block : m.blocks)
    for (TensorDesc& t : block.tensors) t.trainable = false;
  const Layout layout(m, Schema::bf16, kSmallTile);
  EXPECT_THROW(build_train_plan(layout, {}), base::Error);
  EXPECT_NO_THROW(check_plan(build_eval_plan(layout, {})));
}

TEST(PlanBuilder, DefaultPoolsAreThoseOfTheDesign) {
  PlanOptions o = options_for({Tier::nvme, Tier::nvme}, Placement::backward, true);
  Plan plan = build_train_plan(small_layout(40, 10, 50, 8), o);
  const auto size = [&](Ring r) { return plan.rings[static_cast<size_t>(r)].size; };
  EXPECT_EQ(size(Ring::weights_held), 2u * 10 + 50);  // 2 layers + the largest block that is held, the head
  EXPECT_EQ(size(Ring::weights), 16u);
  EXPECT_EQ(size(Ring::state), 32u);
  EXPECT_EQ(size(Ring::gradients), 40u + 8 * 10 + 50);
  EXPECT_EQ(size(Ring::device_layer), 2u);
  EXPECT_EQ(size(Ring::device_big), 1u);
  o.pools.weights = 64;
  o.pools.state = 8;
  o.pools.device_slots = 3;
  o.keep_weights = 2;
  plan = build_train_plan(small_layout(40, 10, 0, 8), o);
  EXPECT_EQ(size(Ring::weights) + size(Ring::weights_held), 64u);
  EXPECT_EQ(size(Ring::tied_gradients), 40u);
  EXPECT_EQ(size(Ring::state), 8u);
  EXPECT_EQ(size(Ring::device_layer), 3u);
  EXPECT_EQ(size(Ring::device_kept), 2u);
}

}  // namespace
}  // namespace sluice::offload
