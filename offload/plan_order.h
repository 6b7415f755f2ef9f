// What precedes what in every execution of a plan, from its dependencies, lanes and rings.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "offload/plan.h"
#include "offload/ring_edges.h"

namespace sluice::offload {

// Data, lane order and buffer reuse of one period, as one graph over its operations.
class SamePeriodGraph {
 public:
  SamePeriodGraph(const Plan& plan, std::span<const RingEdge> edges);
  // All operations, each after what it waits for; shorter than the plan when there is a cycle.
  const std::vector<uint32_t>& sorted() const { return sorted_; }
  bool acyclic() const { return sorted_.size() == successors_.size(); }
  // A cycle, each operation waiting for the one before it; empty when there is none.
  std::vector<uint32_t> cycle() const;

 private:
  std::vector<std::vector<uint32_t>> successors_;
  std::vector<uint32_t> sorted_;
};

// Answers "is x done before y starts?" by vector clocks: of every operation, how far each lane has certainly
// been started when it starts. Lanes start in order; disk lanes end in any order, the others one by one.
// Needs an acyclic plan.
class PlanOrder {
 public:
  PlanOrder(const Plan& plan, std::span<const RingEdge> edges, const SamePeriodGraph& graph);
  // Is x always done before y of `periods` (0 or 1) periods later starts?
  bool before(uint32_t x, uint32_t y, uint32_t periods) const;

 private:
  static constexpr uint32_t kPeriods = 2;  // of the window that is looked at
  using Clock =
      std::array<int32_t, kLanes>;  // by lane: position over the periods of the last start; -1: none
  struct Edge {
    uint32_t to, periods;
  };
  int32_t place(uint32_t op, uint32_t period) const;
  const Clock& clock(uint32_t op, uint32_t period) const { return clocks_[period * position_.size() + op]; }
  void fill(const Plan& plan, const SamePeriodGraph& graph, std::span<const std::vector<Edge>> waits_for);

  std::vector<Lane> lane_;          // by operation
  std::vector<uint32_t> position_;  // in its lane
  std::array<uint32_t, kLanes> length_{};
  std::vector<std::vector<Edge>> successors_;  // by dependency or buffer
  std::vector<Clock> clocks_;
};

}  // namespace sluice::offload
