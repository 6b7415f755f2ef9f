// What the control group of this process leaves it: memory and CPU time. Versions 1 and 2, nested groups
// included.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

namespace sluice::base {

struct CgroupLimits {
  std::optional<uint64_t> memory_limit;  // bytes; the tightest group from our own up to the root
  std::optional<uint64_t>
      memory_available;        // least over these groups of limit - use; reclaimable file cache is no use
  std::optional<double> cpus;  // CPU seconds per second
};

// root: where proc and sys are found, "/" except in tests. No control groups: nothing is limited.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace sluice::base
