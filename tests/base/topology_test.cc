#include "base/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>

namespace sluice::base {
namespace {

TEST(Topology, AgreesWithTheAffinityOfTheProcess) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const Topology all = detect_topology();
  ASSERT_FALSE(all.cpus.empty());
  for (const unsigned cpu : all.cpus) EXPECT_TRUE(CPU_ISSET(cpu, &before));
  EXPECT_GE(all.physical_cores, 1u);
  EXPECT_LE(all.physical_cores, all.cpus.size());

  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(all.cpus.front(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const Topology bound = detect_topology();
  sched_setaffinity(0, sizeof(before), &before);
  EXPECT_EQ(bound.cpus, std::vector<unsigned>{all.cpus.front()});
  EXPECT_EQ(bound.physical_cores, 1u);
}

TEST(Topology, NumaNodesPartitionTheCpus) {
  const Topology topology = detect_topology();
  ASSERT_FALSE(topology.numa_nodes.empty());
  std::vector<unsigned> cpus;
  for (const NumaNode& node : topology.numa_nodes)
    cpus.insert(cpus.end(), node.cpus.begin(), node.cpus.end());
  std::sort(cpus.begin(), cpus.end());
  EXPECT_EQ(cpus, topology.cpus);
}

TEST(Topology, AQuotaLimitsTheUsableCores) {
  Topology topology;
  topology.physical_cores = 8;
  EXPECT_EQ(topology.usable_cores(), 8u);
  topology.cpu_quota = 2.5;
  EXPECT_EQ(topology.usable_cores(), 2u);
  topology.cpu_quota = 0.25;
  EXPECT_EQ(topology.usable_cores(), 1u);
  topology.cpu_quota = 100;
  EXPECT_EQ(topology.usable_cores(), 8u);
}

}  // namespace
}  // namespace sluice::base
