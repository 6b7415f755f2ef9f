#include <algorithm>

#include "base/error.h"
#include "offload/plan.h"
#include "offload/plan_data_check.h"
#include "offload/plan_order.h"
#include "offload/ring_edges.h"

namespace sluice::offload {
namespace {

using base::ErrorKind;
using base::fail;

void check_lanes(const Plan& plan) {
  std::vector<char> placed(plan.ops.size(), 0);
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const auto& order = plan.order[lane];
    if (!order.empty() && plan.widths[lane] == 0)
      fail(ErrorKind::bug, "lane {} has width 0", to_string(static_cast<Lane>(lane)));
    for (size_t n = 0; n < order.size(); ++n) {
      if (order[n] >= plan.ops.size() || placed[order[n]] ||
          static_cast<size_t>(plan.ops[order[n]].lane) != lane)
        fail(ErrorKind::bug, "lane {}: place {} holds no operation, another lane's or one placed before",
             to_string(static_cast<Lane>(lane)), n);
      placed[order[n]] = 1;
      if (n > 0 && !(plan.ops[order[n - 1]].key < plan.ops[order[n]].key))
        fail(ErrorKind::bug, "lane {}: {} is not after {} by its key", to_string(static_cast<Lane>(lane)),
             plan.name(order[n]), plan.name(order[n - 1]));
    }
  }
  for (uint32_t i = 0; i < plan.ops.size(); ++i)
    if (!placed[i]) fail(ErrorKind::bug, "{} is in no lane", plan.name(i));
}

void check_operations(const Plan& plan) {
  for (uint32_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    for (const Dep& dep : op.deps) {
      if (dep.op >= plan.ops.size())
        fail(ErrorKind::bug, "{} depends on an operation that is not there", plan.name(i));
      if (dep.periods > 1)
        fail(ErrorKind::bug, "{} depends on {} of {} periods ago", plan.name(i), plan.name(dep.op),
             dep.periods);
    }
    std::array<uint32_t, kRings> seen{};
    for (const Use& use : op.uses) {
      if (use.periods > 1)
        fail(ErrorKind::bug, "{} uses a buffer of {} periods ago", plan.name(i), use.periods);
      if (++seen[static_cast<size_t>(use.ring)] > 1 && op.kind != OpKind::gate)
        fail(ErrorKind::bug, "{} uses two buffers of ring {}", plan.name(i), to_string(use.ring));
    }
  }
}

// Does the plan run with these ring sizes?
bool runs(const Plan& plan) {
  std::vector<RingEdge> edges;
  try {
    edges = ring_edges(plan);
  } catch (const base::Error& e) {
    if (e.kind() != ErrorKind::config) throw;
    return false;
  }
  return SamePeriodGraph(plan, edges).acyclic();
}

uint32_t largest_size(const RingInfo& ring) {
  return 2 * ring.acquisitions;
}  // no buffer waits longer than a period

// The least size of ring r with which the plan runs; 0: none. Running is monotone in every size.
uint32_t least_size(Plan& plan, size_t r) {
  RingInfo& ring = plan.rings[r];
  const uint32_t given = ring.size;
  uint32_t low = 1, high = largest_size(ring);
  ring.size = high;
  uint32_t least = runs(plan) ? high : 0;
  while (least != 0 && low < high) {
    ring.size = low + (high - low) / 2;
    if (runs(plan)) {
      high = least = ring.size;
    } else {
      low = ring.size + 1;
    }
  }
  ring.size = given;
  return least;
}

const char* setting(Ring ring) {
  switch (ring) {
    case Ring::weights:
    case Ring::weights_held:
      return "; raise execution.pools.weights, or leave it out";
    case Ring::state:
      return "; raise execution.pools.state, or leave it out";
    case Ring::gradients:
      return "; raise execution.pools.gradients, or leave it out";
    case Ring::device_layer:
      return "; raise execution.device_slots";
    default:
      return "";
  }
}

[[noreturn]] void fail_ring(const RingInfo& given, Ring ring, uint32_t least) {
  fail(ErrorKind::config, "the plan cannot run: ring {} has {} buffers and needs at least {}{}",
       to_string(ring), given.size, least, setting(ring));
}

[[noreturn]] void fail_cycle(const Plan& plan) {
  const auto cycle = SamePeriodGraph(plan, ring_edges(plan)).cycle();
  std::string names;
  for (size_t n = 0; n < std::min<size_t>(cycle.size(), 16); ++n) names += plan.name(cycle[n]) + " -> ";
  fail(ErrorKind::bug, "the plan cannot run with any ring size: {}{}", names,
       cycle.size() > 16 ? "..." : plan.name(cycle.front()));
}

// Some ring is too small, or the order itself is wrong.
[[noreturn]] void explain(const Plan& plan) {
  Plan large = plan;
  for (RingInfo& ring : large.rings) ring.size = std::max(ring.size, largest_size(ring));
  if (!runs(large)) fail_cycle(large);
  for (size_t r = 0; r < kRings; ++r) {
    if (plan.rings[r].acquisitions == 0) continue;
    const uint32_t least = least_size(large, r);
    if (plan.rings[r].size < least) fail_ring(plan.rings[r], static_cast<Ring>(r), least);
  }
  Plan trial = plan;  // each is large enough alone
  for (size_t r = 0; r < kRings; ++r) {
    if (plan.rings[r].acquisitions == 0) continue;
    if (const uint32_t least = least_size(trial, r); least != 0)
      fail_ring(plan.rings[r], static_cast<Ring>(r), least);
  }
  fail(ErrorKind::config,
       "the plan cannot run: its rings are too small together; raise execution.pools, or leave it out");
}

}  // namespace

void check_plan(const Plan& plan) {
  check_lanes(plan);
  check_operations(plan);
  if (!runs(plan)) explain(plan);
  const std::vector<RingEdge> edges = ring_edges(plan);
  const SamePeriodGraph graph(plan, edges);
  check_uses(plan);
  check_data(plan, PlanOrder(plan, edges, graph));
}

}  // namespace sluice::offload
