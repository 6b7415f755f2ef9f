#include "cpu_adam/leaf_pool.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>

#include "base/topology.h"

namespace sluice::cpu_adam {

namespace tbb = oneapi::tbb;

namespace {

// Debian ships the part of TBB that knows nodes apart from it, and TBB says nothing when it is not there. It is asked only where there are several:
// it loads that part in a way that sanitizers refuse.
std::vector<tbb::numa_node_id> usable_nodes(const base::Topology& topology) {
  const auto usable = std::count_if(topology.numa_nodes.begin(), topology.numa_nodes.end(), [](const base::NumaNode& n) { return !n.cpus.empty(); });
  if (usable < 2) return {tbb::task_arena::automatic};
  const std::vector<tbb::numa_node_id> nodes = tbb::info::numa_nodes();
  if (nodes.size() < static_cast<size_t>(usable))
    spdlog::warn("this machine has {} NUMA nodes, TBB sees {}: the optimizer's threads are not bound to nodes. Install libtbbbind-2-5", usable,
                 nodes.size());
  return nodes;
}

}  // namespace

int granted_threads(int processors, std::optional<double> quota) { return quota ? std::clamp(static_cast<int>(*quota), 1, processors) : processors; }

std::vector<NodeThreads> threads_by_node(int threads) {
  static const base::Topology topology = base::detect_topology();
  static const std::vector<tbb::numa_node_id> nodes = usable_nodes(topology);
  int all = 0;
  std::vector<NodeThreads> found;
  for (const tbb::numa_node_id node : nodes) {
    found.push_back({node, nodes.size() > 1 ? tbb::info::default_concurrency(node) : tbb::info::default_concurrency()});
    all += found.back().threads;
  }
  if (threads == 0) threads = granted_threads(all, topology.cpu_quota);
  if (found.size() < 2 || static_cast<size_t>(threads) < found.size()) return {{tbb::task_arena::automatic, threads}};
  int before = 0, given = 0;
  for (NodeThreads& node : found) {  // at least one each; rounded so that the sum is kept
    before += node.threads;
    const int until = std::max(given + 1, static_cast<int>(int64_t{threads} * before / all));
    node.threads = until - given;
    given = until;
  }
  return found;
}

struct LeafPool::Impl {
  explicit Impl(const std::vector<NodeThreads>& nodes) {
    for (const NodeThreads& node : nodes) {
      arenas.push_back(node.node == tbb::task_arena::automatic
                           ? std::make_unique<tbb::task_arena>(node.threads)
                           : std::make_unique<tbb::task_arena>(tbb::task_arena::constraints(node.node, node.threads)));
      threads.push_back(node.threads);
      total += node.threads;
    }
    if (total > tbb::info::default_concurrency()) limit.emplace(tbb::global_control::max_allowed_parallelism, static_cast<size_t>(total));
  }
  std::optional<tbb::global_control> limit;  // lifts TBB's own, for more threads than cores
  std::vector<std::unique_ptr<tbb::task_arena>> arenas;
  std::vector<int> threads;
  int total = 0;
};

LeafPool::LeafPool(const std::vector<NodeThreads>& nodes) : impl_(std::make_unique<Impl>(nodes)) {}
LeafPool::~LeafPool() = default;
int LeafPool::threads() const {
  return impl_->total;
}
size_t LeafPool::nodes() const {
  return impl_->arenas.size();
}

void LeafPool::run(size_t leaves, void (*share)(void* context, size_t first, size_t last),
                   void* context) const {
  if (impl_->total == 1 || leaves <= 1) return share(context, 0, leaves);
  using Range = tbb::blocked_range<size_t>;
  const auto loop = [&](size_t first, size_t last) {
    tbb::parallel_for(
        Range(first, last), [&](const Range& range) { share(context, range.begin(), range.end()); }, tbb::static_partitioner());
  };
  std::vector<size_t> ends;
  int before = 0;
  for (const int threads : impl_->threads) ends.push_back(leaves * static_cast<size_t>(before += threads) / static_cast<size_t>(impl_->total));
  std::vector<tbb::task_group> groups(ends.size() - 1);  // of all nodes but the first, which the caller works on
  for (size_t i = 0; i < groups.size(); ++i)
    impl_->arenas[i + 1]->execute([&, i] { groups[i].run([&, i] { loop(ends[i], ends[i + 1]); }); });
  impl_->arenas[0]->execute([&] { loop(0, ends[0]); });
  for (size_t i = 0; i < groups.size(); ++i) impl_->arenas[i + 1]->execute([&, i] { groups[i].wait(); });
}

}  // namespace sluice::cpu_adam
