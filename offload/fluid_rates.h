// How operations that run at the same time share a machine: max-min over cores, DRAM, disk and links.
#pragma once
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "offload/machine.h"
#include "offload/plan.h"

namespace sluice::offload {

enum class Resource : uint8_t { disk, h2d, d2h, copies, net, dram, update, compute, cores, commit };  // copies: both ways together
const char* to_string(Resource resource);

using LaneCounts = std::array<uint32_t, kLanes>;  // operations at work
using LaneAmounts = std::array<double, kLanes>;   // bytes; compute: FLOP; commit: seconds, which nothing else changes

// Not thread-safe: remembers what it has computed.
class FluidRates {
 public:
  explicit FluidRates(const Machine& machine);
  // Work per second of one operation of each lane. Counts below 64.
  const LaneAmounts& of(const LaneCounts& at_work);

 private:
  struct Share {
    double capacity;
    LaneAmounts use;        // capacity that one unit of the lane's work takes
    bool reads_and_writes;  // exists only while both are at work
  };
  LaneAmounts solve(const LaneCounts& at_work) const;

  std::vector<Share> shares_;
  LaneAmounts weight_{};  // of an operation of each lane: the unit in which max-min is fair
  std::unordered_map<uint64_t, LaneAmounts> known_;
};

// Seconds that each resource needs for this much work if it were alone, the longest first; those of 0 are
// left out.
struct Bound {
  Resource resource;
  double seconds;
};
std::vector<Bound> bounds(const Machine& machine, const LaneAmounts& work);

}  // namespace sluice::offload
