#include "base/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>

#include "base/cgroup.h"
#include "base/error.h"

namespace sluice::base {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
struct Free {
  void operator()(hwloc_bitmap_t set) const { hwloc_bitmap_free(set); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, Destroy>;
using Cpuset = std::unique_ptr<hwloc_bitmap_s, Free>;

HwlocTopology load() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) fail(ErrorKind::bug, "hwloc_topology_init failed");
  HwlocTopology topology(raw);
  if (hwloc_topology_load(raw) != 0) fail(ErrorKind::bug, "hwloc cannot read this machine's topology");
  return topology;
}

// Read once: what affinity allows of it is asked anew each time.
hwloc_topology_t machine() {
  static const HwlocTopology topology = load();
  return topology.get();
}

// What affinity lets the process use, within what control groups allow.
Cpuset usable_cpuset(hwloc_topology_t topology) {
  Cpuset set(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(topology, set.get(), HWLOC_CPUBIND_PROCESS) != 0)
    hwloc_bitmap_copy(set.get(), hwloc_topology_get_allowed_cpuset(topology));
  hwloc_bitmap_and(set.get(), set.get(), hwloc_topology_get_allowed_cpuset(topology));
  return set;
}

std::vector<unsigned> indices(hwloc_const_bitmap_t set) {
  std::vector<unsigned> found;
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i))
    found.push_back(static_cast<unsigned>(i));
  return found;
}

unsigned count_cores(hwloc_topology_t topology, hwloc_const_bitmap_t usable) {
  unsigned cores = 0;
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr)
    if (hwloc_bitmap_intersects(core->cpuset, usable)) ++cores;
  return cores;
}

}  // namespace

unsigned Topology::usable_cores() const {
  if (!cpu_quota || *cpu_quota >= physical_cores) return physical_cores;
  return std::max(1u, static_cast<unsigned>(*cpu_quota));
}

Topology detect_topology() {
  const hwloc_topology_t topology = machine();
  const Cpuset usable = usable_cpuset(topology);
  Topology result;
  result.cpus = indices(usable.get());
  if (result.cpus.empty()) result.cpus = {0};
  result.physical_cores = count_cores(topology, usable.get());
  if (result.physical_cores == 0)
    result.physical_cores = static_cast<unsigned>(result.cpus.size());  // some sandboxes hide cores
  result.cpu_quota = read_cgroup_limits().cpus;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    const Cpuset common(hwloc_bitmap_alloc());
    hwloc_bitmap_and(common.get(), node->cpuset, usable.get());
    result.numa_nodes.push_back({node->os_index, node->attr->numanode.local_memory, indices(common.get())});
  }
  if (result.numa_nodes.empty()) result.numa_nodes.push_back({0, 0, result.cpus});
  return result;
}

void interleave_over_nodes(void* data, size_t bytes) {
  const Cpuset nodes(hwloc_bitmap_alloc());
  hwloc_cpuset_to_nodeset(machine(), usable_cpuset(machine()).get(), nodes.get());
  if (hwloc_bitmap_weight(nodes.get()) < 2) return;
  hwloc_set_area_membind(machine(), data, bytes, nodes.get(), HWLOC_MEMBIND_INTERLEAVE, HWLOC_MEMBIND_BYNODESET);
}

}  // namespace sluice::base
