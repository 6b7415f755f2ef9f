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
constexpr Tiers kTiers[] = {{Tier::none, Tier::none}, {Tier::none, Tier::cpu},  {Tier::none, Tier::nvme}, {Tier::cpu, Tier::cpu},
                            {Tier::cpu, Tier::nvme},  {Tier::nvme, Tier::cpu}, {Tier::nvme, Tier::nvme}};
constexpr Placement kPlacements[] = {Placement::none, Placement::forward, Placement::backward, Placement::spread};

PlanOptions options_for(Tiers tiers, Placement placement, bool commit) {
  PlanOptions o;
  o.weights = tiers.weights;
  o.state = tiers.state;
  o.placement = placement;
  o.commit = commit && tiers.state != Tier::none;
  o.write_weights = o.commit || tiers.weights == Tier::nvme || tiers.state == Tier::nvme;
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
              SCOPED_TRACE(fmt::format("weights {} state {} placement {} commit {} micro {} keep {} tied {}", to_string(o.weights),
                                       to_string(o.state), to_string(placement), commit, micro, keep, layout.tied()));
              EXPECT_NO_THROW(check_plan(build_train_plan(layout, o)));
            }
}

}  // namespace
}  // namespace sluice::offload
