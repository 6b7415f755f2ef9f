#include "offload/ring_edges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "executor_harness.h"

namespace sluice::offload {
namespace {

using base::Error;
using base::ErrorKind;

TEST(RingEdges, WrapOverPeriods) {
  Plan plan = empty_plan();
  for (int i = 0; i < 3; ++i) add(plan, Lane::disk_weights);
  const uint32_t user = add(plan, Lane::h2d, {{0, 0}});
  use(plan, Ring::weights, {{0, 0}, {user, 0}});
  use(plan, Ring::weights, {{1, 0}});
  use(plan, Ring::weights, {{2, 0}, {user, 1}});
  order_plan(plan);
  const auto find = [&](uint32_t size) {
    plan.rings[static_cast<size_t>(Ring::weights)].size = size;
    std::vector<std::tuple<uint32_t, uint32_t, uint32_t>> edges;
    for (const RingEdge& edge : ring_edges(plan)) edges.emplace_back(edge.from, edge.to, edge.periods);
    std::sort(edges.begin(), edges.end());
    return edges;
  };
  using Edges = std::vector<std::tuple<uint32_t, uint32_t, uint32_t>>;
  // Two buffers: 0 follows 1 of the period before, 1 follows 2 of the period before (whose user comes a period later), 2 follows 0.
  EXPECT_EQ(find(2), (Edges{{0, 2, 0}, {1, 0, 1}, {2, 1, 1}, {user, 1, 0}, {user, 2, 0}}));
  EXPECT_EQ(find(6), (Edges{{0, 0, 2}, {1, 1, 2}, {2, 2, 2}, {user, 0, 2}, {user, 2, 1}}));
}

TEST(RingEdges, ABufferWantedBeforeALaterPeriodsUserIsAnErrorWithTheSizeNeeded) {
  Plan plan = empty_plan();
  for (int i = 0; i < 4; ++i) add(plan, Lane::disk_weights);
  for (uint32_t i = 0; i < 4; ++i) use(plan, Ring::state, {{i, 0}, {3, i == 1 ? 1u : 0u}});
  order_plan(plan);
  for (uint32_t size = 1; size < 6; ++size) {
    plan.rings[static_cast<size_t>(Ring::state)].size = size;
    try {
      (void)ring_edges(plan);
      EXPECT_GE(size, 3u);
    } catch (const Error& error) {
      EXPECT_LT(size, 3u);
      EXPECT_EQ(error.kind(), ErrorKind::config);
      EXPECT_NE(std::string(error.what()).find("at least 3"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace sluice::offload
