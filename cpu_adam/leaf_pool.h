// Threads over the leaves of a tile. Internal to cpu_adam.
#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "cpu_adam/float_mode.h"

namespace sluice::cpu_adam {

// Threads on one NUMA node.
struct NodeThreads {
  int node;  // TBB's number of it; -1: any
  int threads;
};

// Threads for so many processors, of which a control group may grant a share of the time only. TBB knows affinity, but not that share.
int granted_threads(int processors, std::optional<double> quota);

// So many threads on the NUMA nodes that this process may use, in proportion to their cores; 0: all of them. One entry where there is one
// node, where TBB cannot tell nodes apart (a warning says so), or for fewer threads than nodes.
std::vector<NodeThreads> threads_by_node(int threads);

// A TBB arena for each node. Thread-safe: several threads may run loops at once; they share the workers.
class LeafPool {
 public:
  explicit LeafPool(int threads) : LeafPool(threads_by_node(threads)) {}
  explicit LeafPool(const std::vector<NodeThreads>& nodes);
  ~LeafPool();
  int threads() const;
  size_t nodes() const;

  // Calls body(leaf) for leaf = 0 .. leaves - 1 in contiguous shares, those of a node next to each other, the caller working along, with
  // the kernels' floating-point mode set. Serial for one thread or one leaf. body must not throw.
  template <class Body>
  void for_each(size_t leaves, const Body& body) const {
    Loop<Body> loop{body};
    loop.handed_out.store(true, std::memory_order_release);
    run(leaves, Loop<Body>::share, &loop);
    loop.shares_done.load(std::memory_order_acquire);
  }

 private:
  // TBB orders what is before the loop, in it and after it. Its library is not built for the thread
  // sanitizer, so that order is stated once more here, where the sanitizer sees it.
  template <class Body>
  struct Loop {
    const Body& body;
    std::atomic<bool> handed_out{false};
    std::atomic<size_t> shares_done{0};

    static void share(void* context, size_t first, size_t last) {
      auto& loop = *static_cast<Loop*>(context);
      loop.handed_out.load(std::memory_order_acquire);
      const FloatModeScope mode;
      for (size_t leaf = first; leaf < last; ++leaf) loop.body(leaf);
      loop.shares_done.fetch_add(1, std::memory_order_release);
    }
  };
  void run(size_t leaves, void (*share)(void* context, size_t first, size_t last), void* context) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::cpu_adam
