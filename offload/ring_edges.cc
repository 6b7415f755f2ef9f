#include "offload/ring_edges.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace sluice::offload {
namespace {

using base::ErrorKind;
using base::fail;

constexpr uint32_t kNobody = std::numeric_limits<uint32_t>::max();

struct User {
  uint32_t op;
  uint32_t periods;  // later than the acquisition
};

struct Acquisition {
  uint32_t op = kNobody;
  std::vector<User> users;  // the acquiring operation among them
};

using RingUse = std::vector<Acquisition>;  // by acquisition number

std::array<RingUse, kRings> collect(const Plan& plan) {
  std::array<RingUse, kRings> rings;
  for (size_t r = 0; r < kRings; ++r) rings[r].resize(plan.rings[r].acquisitions);
  for (uint32_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    for (const Use& use : op.uses) {
      RingUse& ring = rings[static_cast<size_t>(use.ring)];
      if (use.acquisition >= ring.size())
        fail(ErrorKind::bug, "{} uses acquisition {} of ring {}, which has {} in a period", plan.name(i), use.acquisition,
             to_string(use.ring), ring.size());
      ring[use.acquisition].users.push_back({i, use.periods});
    }
    if (op.acquires > op.uses.size())
      fail(ErrorKind::bug, "{} acquires {} buffers, but uses {}", plan.name(i), op.acquires, op.uses.size());
    for (size_t a = 0; a < op.acquires; ++a) {
      const Use& use = op.uses[a];
      if (use.periods != 0) fail(ErrorKind::bug, "{} acquires a buffer of an earlier period", plan.name(i));
      uint32_t& owner = rings[static_cast<size_t>(use.ring)][use.acquisition].op;
      if (owner != kNobody)
        fail(ErrorKind::bug, "{} and {} both acquire buffer {} of ring {}", plan.name(owner), plan.name(i), use.acquisition,
             to_string(use.ring));
      owner = i;
    }
  }
  return rings;
}

// The least ring size that never asks for a buffer before a user of a later period has had it.
int64_t least_size(const RingUse& ring) {
  int64_t least = 1;
  const auto per_period = static_cast<int64_t>(ring.size());
  for (size_t q = 0; q < ring.size(); ++q)
    for (const User& user : ring[q].users) least = std::max(least, user.periods * per_period - static_cast<int64_t>(q));
  return least;
}

void add_edges(const Plan& plan, Ring name, const RingUse& ring, std::vector<RingEdge>& edges) {
  const auto per_period = static_cast<int64_t>(ring.size());
  const int64_t size = plan.rings[static_cast<size_t>(name)].size;
  if (per_period == 0) return;
  if (size == 0) fail(ErrorKind::bug, "ring {} is in use, but has no buffers", to_string(name));
  if (const int64_t need = least_size(ring); size < need)
    fail(ErrorKind::config, "the {} ring is too small for the plan: it has {} buffers and needs at least {}", to_string(name),
         size, need);
  for (int64_t j = 0; j < per_period; ++j) {
    if (ring[j].op == kNobody)
      fail(ErrorKind::bug, "no operation acquires buffer {} of ring {}", j, to_string(name));
    const int64_t ago = size > j ? (size - j + per_period - 1) / per_period : 0;  // periods back to acquisition j - size
    for (const User& user : ring[j - size + ago * per_period].users)
      edges.push_back({user.op, ring[j].op, static_cast<uint32_t>(ago - user.periods)});
  }
}

}  // namespace

std::vector<RingEdge> ring_edges(const Plan& plan) {
  std::vector<RingEdge> edges;
  const auto rings = collect(plan);
  for (size_t r = 0; r < kRings; ++r)
    if (!plan.given(static_cast<Ring>(r))) add_edges(plan, static_cast<Ring>(r), rings[r], edges);
  return edges;
}

}  // namespace sluice::offload
