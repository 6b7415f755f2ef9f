#include "base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace sluice::base {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kUnlimited = uint64_t{1} << 60;  // version 1 writes "no limit" as a number near 2^63

std::optional<uint64_t> read_number(const fs::path& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;  // "max" is no number
}

uint64_t read_field(const fs::path& file, const std::string& wanted) {
  std::ifstream in(file);
  std::string name;
  for (uint64_t value = 0; in >> name >> value;)
    if (name == wanted) return value;
  return 0;
}

template <class T>
void tighten(std::optional<T>& limit, T value) {
  limit = limit ? std::min(*limit, value) : value;
}

// The group's folder below a hierarchy's mount point and all above it, up to the mount point. A container may
// see its own group mounted as the root while its name is the host's: folders that are not there are left
// out.
std::vector<fs::path> folders(const fs::path& mount, const fs::path& group) {
  std::vector<fs::path> found;
  for (fs::path name = group.lexically_normal().relative_path();; name = name.parent_path()) {
    std::error_code error;
    if (fs::is_directory(mount / name, error)) found.push_back(mount / name);
    if (name.empty()) return found;
  }
}

struct MemoryFiles {
  const char *limit, *use, *cache_field;
};
constexpr MemoryFiles kMemoryV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr MemoryFiles kMemoryV2 = {"memory.max", "memory.current", "inactive_file"};

void read_memory(const fs::path& folder, const MemoryFiles& files, CgroupLimits& limits) {
  const std::optional<uint64_t> limit = read_number(folder / files.limit);
  if (!limit || *limit >= kUnlimited) return;
  const uint64_t use = read_number(folder / files.use).value_or(0);
  const uint64_t cache = std::min(use, read_field(folder / "memory.stat", files.cache_field));
  tighten(limits.memory_limit, *limit);
  tighten(limits.memory_available, *limit - std::min(*limit, use - cache));
}

void read_cpu_v2(const fs::path& folder, CgroupLimits& limits) {
  std::ifstream in(folder / "cpu.max");
  double quota = 0, period = 0;
  if (in >> quota >> period && quota > 0 && period > 0) tighten(limits.cpus, quota / period);
}

void read_cpu_v1(const fs::path& folder, CgroupLimits& limits) {
  const std::optional<uint64_t> quota = read_number(folder / "cpu.cfs_quota_us");
  const std::optional<uint64_t> period = read_number(folder / "cpu.cfs_period_us");
  if (quota && period && *quota > 0 && *quota<kUnlimited&& * period> 0)
    tighten(limits.cpus, static_cast<double>(*quota) / static_cast<double>(*period));
}

bool has_controller(const std::string& controllers, const std::string& name) {
  return ("," + controllers + ",").find("," + name + ",") != std::string::npos;
}

// Where version 1 mounts a set of controllers: usually under their joined names, sometimes under a single
// one.
fs::path mount_v1(const fs::path& cgroup, const std::string& controllers, const std::string& name) {
  std::error_code error;
  return fs::is_directory(cgroup / controllers, error) ? cgroup / controllers : cgroup / name;
}

}  // namespace

CgroupLimits read_cgroup_limits(const fs::path& root) {
  const fs::path cgroup = root / "sys/fs/cgroup";
  CgroupLimits limits;
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "4:memory:/name", version 2: "0::/name"
    std::istringstream fields(line);
    std::string id, controllers, group;
    if (!std::getline(fields, id, ':') || !std::getline(fields, controllers, ':') ||
        !std::getline(fields, group))
      continue;
    if (controllers.empty()) {
      std::error_code error;
      const bool hybrid = fs::is_directory(cgroup / "unified", error);
      for (const fs::path& folder : folders(hybrid ? cgroup / "unified" : cgroup, group)) {
        read_memory(folder, kMemoryV2, limits);
        read_cpu_v2(folder, limits);
      }
    }
    if (has_controller(controllers, "memory"))
      for (const fs::path& folder : folders(mount_v1(cgroup, controllers, "memory"), group))
        read_memory(folder, kMemoryV1, limits);
    if (has_controller(controllers, "cpu"))
      for (const fs::path& folder : folders(mount_v1(cgroup, controllers, "cpu"), group))
        read_cpu_v1(folder, limits);
  }
  return limits;
}

}  // namespace sluice::base
