// The processors that this process may use.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::base {

struct NumaNode {
  unsigned index = 0;          // of the system
  uint64_t memory_bytes = 0;   // installed
  std::vector<unsigned> cpus;  // of those in Topology::cpus
};

struct Topology {
  std::vector<unsigned> cpus;        // logical ones, as affinity and cpusets allow; ascending, never empty
  unsigned physical_cores = 1;       // that have at least one of these
  std::optional<double> cpu_quota;   // CPU seconds per second that the control group grants
  std::vector<NumaNode> numa_nodes;  // at least one

  // Threads that compute at full speed: physical cores, less when the quota is smaller; at least 1.
  unsigned usable_cores() const;
};

// Takes some milliseconds; call once and pass the result on.
Topology detect_topology();

// Pages of the range that are touched from now on go in turn to the NUMA nodes whose processors this process may use; where there is one,
// or the system refuses, nothing changes. Page-aligned. Thread-safe.
void interleave_over_nodes(void* data, size_t bytes);

}  // namespace sluice::base
