#include "offload/plan_order.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::offload {

SamePeriodGraph::SamePeriodGraph(const Plan& plan, std::span<const RingEdge> edges)
    : successors_(plan.ops.size()) {
  std::vector<uint32_t> waiting(plan.ops.size(), 0);
  const auto add = [&](uint32_t from, uint32_t to) {
    successors_[from].push_back(to);
    ++waiting[to];
  };
  for (uint32_t i = 0; i < plan.ops.size(); ++i)
    for (const Dep& dep : plan.ops[i].deps)
      if (dep.periods == 0) add(dep.op, i);
  for (const auto& lane : plan.order)
    for (size_t n = 1; n < lane.size(); ++n) add(lane[n - 1], lane[n]);
  for (const RingEdge& edge : edges)
    if (edge.periods == 0) add(edge.from, edge.to);
  sorted_.reserve(plan.ops.size());
  for (uint32_t i = 0; i < plan.ops.size(); ++i)
    if (waiting[i] == 0) sorted_.push_back(i);
  for (size_t next = 0; next < sorted_.size(); ++next)
    for (uint32_t to : successors_[sorted_[next]])
      if (--waiting[to] == 0) sorted_.push_back(to);
}

std::vector<uint32_t> SamePeriodGraph::cycle() const {
  if (acyclic()) return {};
  std::vector<char> free(successors_.size(), 0);
  for (uint32_t i : sorted_) free[i] = 1;
  // Every operation that is stuck waits for a stuck one: walk back until one comes again.
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> stuck_before(successors_.size(), kNone);
  uint32_t at = kNone;
  for (uint32_t from = 0; from < successors_.size(); ++from) {
    if (free[from]) continue;
    at = from;
    for (uint32_t to : successors_[from]) stuck_before[to] = from;
  }
  std::vector<uint32_t> path, seen(successors_.size(), kNone);
  for (; seen[at] == kNone; at = stuck_before[at]) {
    seen[at] = static_cast<uint32_t>(path.size());
    path.push_back(at);
  }
  std::vector<uint32_t> cycle(path.begin() + seen[at], path.end());
  std::reverse(cycle.begin(), cycle.end());
  return cycle;
}

PlanOrder::PlanOrder(const Plan& plan, std::span<const RingEdge> edges, const SamePeriodGraph& graph)
    : lane_(plan.ops.size()),
      position_(plan.ops.size()),
      successors_(plan.ops.size()),
      clocks_(kPeriods * plan.ops.size()) {
  for (size_t lane = 0; lane < kLanes; ++lane) {
    length_[lane] = static_cast<uint32_t>(plan.order[lane].size());
    for (uint32_t n = 0; n < plan.order[lane].size(); ++n) {
      position_[plan.order[lane][n]] = n;
      lane_[plan.order[lane][n]] = static_cast<Lane>(lane);
    }
  }
  std::vector<std::vector<Edge>> waits_for(plan.ops.size());
  const auto add = [&](uint32_t from, uint32_t to, uint32_t periods) {
    if (periods >= kPeriods) return;
    successors_[from].push_back({to, periods});
    waits_for[to].push_back({from, periods});
  };
  for (uint32_t i = 0; i < plan.ops.size(); ++i)
    for (const Dep& dep : plan.ops[i].deps) add(dep.op, i, dep.periods);
  for (const RingEdge& edge : edges) add(edge.from, edge.to, edge.periods);
  fill(plan, graph, waits_for);
}

void PlanOrder::fill(const Plan& plan, const SamePeriodGraph& graph,
                     std::span<const std::vector<Edge>> waits_for) {
  for (uint32_t period = 0; period < kPeriods; ++period)
    for (uint32_t i : graph.sorted()) {
      Clock& mine = clocks_[period * position_.size() + i];
      mine.fill(-1);
      const auto merge = [&](uint32_t op, uint32_t of_period) {
        const Clock& other = clock(op, of_period);
        for (size_t lane = 0; lane < kLanes; ++lane) mine[lane] = std::max(mine[lane], other[lane]);
      };
      const auto lane = static_cast<size_t>(lane_[i]);
      if (position_[i] > 0) {
        merge(plan.order[lane][position_[i] - 1], period);
      } else if (period > 0) {
        merge(plan.order[lane].back(), period - 1);
      }
      for (const Edge& edge : waits_for[i])
        if (edge.periods <= period) merge(edge.to, period - edge.periods);
      mine[lane] = place(i, period);
    }
}

int32_t PlanOrder::place(uint32_t op, uint32_t period) const {
  return static_cast<int32_t>(period * length_[static_cast<size_t>(lane_[op])] + position_[op]);
}

bool PlanOrder::before(uint32_t x, uint32_t y, uint32_t periods) const {
  SLUICE_CHECK(periods < kPeriods);
  const Clock& started = clock(y, periods);
  if (!is_disk_lane(lane_[x]) && started[static_cast<size_t>(lane_[x])] > place(x, 0)) return true;
  return std::any_of(successors_[x].begin(), successors_[x].end(), [&](const Edge& edge) {
    return edge.periods <= periods &&
           started[static_cast<size_t>(lane_[edge.to])] >= place(edge.to, edge.periods);
  });
}

}  // namespace sluice::offload
