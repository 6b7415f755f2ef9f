// Buffer reuse as dependencies: who must be done before a rotating ring hands a buffer out again.
#pragma once
#include <cstdint>
#include <vector>

#include "offload/plan.h"

namespace sluice::offload {

// `to` acquires the buffer that `from` of `periods` periods ago (0: the same period) still worked on.
struct RingEdge {
  uint32_t from, to;
  uint32_t periods;
};

// Rings rotate: acquisition j takes the buffer of acquisition j - size, counted on over the periods, and waits for all users of
// that one. Error(bug): an acquisition that is missing, doubled or out of range, or a ring in use without buffers. Error(config)
// naming ring, size and the size needed: a buffer would be wanted back before a user of a later period has had it.
std::vector<RingEdge> ring_edges(const Plan& plan);

}  // namespace sluice::offload
