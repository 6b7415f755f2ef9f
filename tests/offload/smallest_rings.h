// The least buffers that a plan can run with.
#pragma once
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "offload/plan.h"
#include "offload/ring_edges.h"

namespace sluice::offload {

// No cycle of edges inside a period over data, lane order and buffer reuse; no buffer wanted before a later period's user.
inline bool can_run(const Plan& plan) {
  std::vector<RingEdge> edges;
  try {
    edges = ring_edges(plan);
  } catch (const base::Error&) {
    return false;
  }
  for (uint32_t v = 0; v < plan.ops.size(); ++v)
    for (const Dep& dep : plan.ops[v].deps) edges.push_back({dep.op, v, dep.periods});
  for (const auto& order : plan.order)
    for (size_t i = 1; i < order.size(); ++i) edges.push_back({order[i - 1], order[i], 0});
  std::vector<std::vector<uint32_t>> after(plan.ops.size());
  std::vector<uint32_t> left(plan.ops.size(), 0), ready;
  for (const RingEdge& edge : edges)
    if (edge.periods == 0) after[edge.from].push_back(edge.to), ++left[edge.to];
  for (uint32_t i = 0; i < plan.ops.size(); ++i)
    if (left[i] == 0) ready.push_back(i);
  size_t seen = 0;
  for (; !ready.empty(); ++seen) {
    const uint32_t op = ready.back();
    ready.pop_back();
    for (uint32_t next : after[op])
      if (--left[next] == 0) ready.push_back(next);
  }
  return seen == plan.ops.size();
}

// Each ring in turn, the others as they are by then. The plan runs as it is.
inline void take_smallest_rings(Plan& plan) {
  for (RingInfo& ring : plan.rings) {
    uint32_t least = 0, most = ring.size;  // runs with most; does not with least (or it is 0)
    while (most - least > 1) {
      ring.size = least + (most - least) / 2;
      (can_run(plan) ? most : least) = ring.size;
    }
    ring.size = most;
  }
}

}  // namespace sluice::offload
