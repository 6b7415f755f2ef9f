#include "cpu_adam/leaf_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <numeric>

namespace sluice::cpu_adam {
namespace {

// Arenas that are bound to no node stand for those of several.
TEST(LeafPool, EveryLeafIsVisitedOnceWhateverTheNodes) {
  const std::vector<std::vector<NodeThreads>> machines{{{-1, 1}}, {{-1, 3}}, {{-1, 1}, {-1, 1}}, {{-1, 2}, {-1, 1}}, {{-1, 1}, {-1, 2}, {-1, 1}}};
  for (const auto& nodes : machines) {
    const LeafPool pool(nodes);
    EXPECT_EQ(pool.nodes(), nodes.size());
    for (const size_t leaves : {0, 1, 2, 3, 7, 64}) {
      std::vector<std::atomic<int>> visits(leaves);
      pool.for_each(leaves, [&](size_t leaf) { ++visits[leaf]; });
      for (size_t i = 0; i < leaves; ++i) EXPECT_EQ(visits[i], 1) << nodes.size() << " nodes, leaf " << i << " of " << leaves;
    }
  }
}

TEST(LeafPool, ThreadsAreSharedOutOverTheNodes) {
  for (const int threads : {1, 2, 3, 8}) {
    const auto nodes = threads_by_node(threads);
    EXPECT_EQ(std::accumulate(nodes.begin(), nodes.end(), 0, [](int sum, const NodeThreads& n) { return sum + n.threads; }), threads);
    for (const NodeThreads& node : nodes) EXPECT_GE(node.threads, 1);
  }
  EXPECT_GE(LeafPool(0).threads(), 1);
}

TEST(LeafPool, AControlGroupsShareOfTheProcessorsIsAllThatIsUsed) {
  EXPECT_EQ(granted_threads(64, std::nullopt), 64);
  EXPECT_EQ(granted_threads(64, 2.5), 2);
  EXPECT_EQ(granted_threads(64, 0.2), 1);
  EXPECT_EQ(granted_threads(2, 64), 2);
}

// As in a cpuset of one. In a process of its own, since the topology is looked at once.
TEST(LeafPoolDeathTest, OnlyTheProcessorsThatThisProcessMayUseGetThreads) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) _exit(90);
    int first = 0;
    while (!CPU_ISSET(first, &allowed)) ++first;
    CPU_ZERO(&allowed);
    CPU_SET(first, &allowed);
    if (sched_setaffinity(0, sizeof allowed, &allowed) != 0) _exit(91);
    _exit(LeafPool(0).threads());
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace sluice::cpu_adam
