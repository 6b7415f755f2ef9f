// The dependencies of a plan, compiled for the executor: who may go on when an operation is issued or done.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "offload/plan.h"

namespace sluice::offload {

// Immutable. Edges are the plan's data dependencies and the reuse of ring buffers.
class Dependencies {
 public:
  // An operation of period k is issued only when all of period k - kLivePeriods is done. So an edge that spans more holds anyway.
  static constexpr uint32_t kLivePeriods = 3;

  explicit Dependencies(const Plan& plan);  // Error(bug) for a malformed plan, Error(config) for too small a ring

  struct Follower {
    uint32_t op;
    uint32_t periods;  // later
  };
  // Device work after device work: may be issued now, see producers().
  std::span<const Follower> after_issue(uint32_t op) const { return after_issue_.of(op); }
  std::span<const Follower> after_done(uint32_t op) const { return after_done_.of(op); }

  // Per operation, how many edges it waits for in period `age` of a run (0: the first). Edges from before the run do not count.
  const std::vector<uint32_t>& waits(uint64_t age) const { return waits_[std::min<uint64_t>(age, kLivePeriods - 1)]; }

  // What the stream of a device operation must wait for: per other device lane, the last operation it depends on.
  struct Producer {
    uint32_t op;
    uint32_t periods;  // ago
  };
  std::span<const Producer> producers(uint32_t op) const { return producers_.of(op); }

  uint32_t position(uint32_t op) const { return position_[op]; }  // in its lane

 private:
  template <class T>
  struct Lists {  // one list per operation, back to back
    std::vector<uint32_t> begin;
    std::vector<T> items;
    std::span<const T> of(uint32_t op) const { return std::span(items).subspan(begin[op], begin[op + 1] - begin[op]); }
  };
  struct Edge {
    uint32_t from, to, periods;
  };
  static std::vector<Edge> all_edges(const Plan& plan);
  static Lists<Follower> followers(size_t ops, const std::vector<Edge>& edges);
  void find_producers(const Plan& plan, const std::vector<Edge>& edges);

  std::vector<uint32_t> position_;
  Lists<Follower> after_issue_, after_done_;
  std::array<std::vector<uint32_t>, kLivePeriods> waits_;
  Lists<Producer> producers_;
};

}  // namespace sluice::offload
