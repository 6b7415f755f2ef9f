#include "offload/executor_dependencies.h"

#include <limits>

#include "base/error.h"
#include "offload/ring_edges.h"

namespace sluice::offload {

using base::ErrorKind;
using base::fail;

std::vector<Dependencies::Edge> Dependencies::all_edges(const Plan& plan) {
  std::vector<Edge> edges;
  for (uint32_t to = 0; to < plan.ops.size(); ++to)
    for (const Dep& dep : plan.ops[to].deps) {
      if (dep.op >= plan.ops.size()) fail(ErrorKind::bug, "{} depends on operation {}, which does not exist", plan.name(to), dep.op);
      edges.push_back({dep.op, to, dep.periods});
    }
  for (const RingEdge& edge : ring_edges(plan)) edges.push_back({edge.from, edge.to, edge.periods});
  std::erase_if(edges, [](const Edge& edge) { return edge.periods >= kLivePeriods; });
  return edges;
}

Dependencies::Lists<Dependencies::Follower> Dependencies::followers(size_t ops, const std::vector<Edge>& edges) {
  Lists<Follower> lists;
  lists.begin.assign(ops + 1, 0);
  lists.items.resize(edges.size());
  for (const Edge& edge : edges) ++lists.begin[edge.from + 1];
  for (size_t i = 0; i < ops; ++i) lists.begin[i + 1] += lists.begin[i];
  std::vector<uint32_t> next(lists.begin.begin(), lists.begin.end() - 1);
  for (const Edge& edge : edges) lists.items[next[edge.from]++] = {edge.to, edge.periods};
  return lists;
}

// Lanes issue in order and a stream is a FIFO: an event of an operation covers all before it. So of the producers on one stream
// only the last matters. If that one lies before the run, so do the others.
void Dependencies::find_producers(const Plan& plan, const std::vector<Edge>& edges) {
  constexpr Producer kNone{std::numeric_limits<uint32_t>::max(), 0};
  std::vector<std::array<Producer, kLanes>> last(plan.ops.size());
  for (auto& lanes : last) lanes.fill(kNone);
  for (const Edge& edge : edges) {
    const Lane from = plan.ops[edge.from].lane;
    if (from == plan.ops[edge.to].lane) continue;
    Producer& known = last[edge.to][static_cast<size_t>(from)];
    const bool later = known.op == kNone.op || edge.periods < known.periods ||
                       (edge.periods == known.periods && position_[edge.from] > position_[known.op]);
    if (later) known = {edge.from, edge.periods};
  }
  producers_.begin.assign(1, 0);
  for (const auto& lanes : last) {
    for (const Producer& producer : lanes)
      if (producer.op != kNone.op) producers_.items.push_back(producer);
    producers_.begin.push_back(static_cast<uint32_t>(producers_.items.size()));
  }
}

Dependencies::Dependencies(const Plan& plan) : position_(plan.ops.size()) {
  size_t placed = 0;
  for (const auto& order : plan.order)
    for (uint32_t i = 0; i < order.size(); ++i, ++placed) position_.at(order[i]) = i;
  if (placed != plan.ops.size() || placed == 0)
    fail(ErrorKind::bug, "a plan of {} operations has {} in its lanes", plan.ops.size(), placed);

  std::vector<Edge> device, host;
  for (const Edge& edge : all_edges(plan)) {
    const bool both_device = is_device_lane(plan.ops[edge.from].lane) && is_device_lane(plan.ops[edge.to].lane);
    (both_device ? device : host).push_back(edge);
    for (uint32_t age = edge.periods; age < kLivePeriods; ++age) {
      waits_[age].resize(plan.ops.size());
      ++waits_[age][edge.to];
    }
  }
  for (auto& waits : waits_) waits.resize(plan.ops.size());
  after_issue_ = followers(plan.ops.size(), device);
  after_done_ = followers(plan.ops.size(), host);
  find_producers(plan, device);
}

}  // namespace sluice::offload
