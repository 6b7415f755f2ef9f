#include "cpu_adam/leaf_pool.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>

#include <optional>

namespace sluice::cpu_adam {

namespace tbb = oneapi::tbb;

struct LeafPool::Impl {
  explicit Impl(int t) : threads(t > 0 ? t : tbb::info::default_concurrency()), arena(threads) {
    if (threads > tbb::info::default_concurrency())
      limit.emplace(tbb::global_control::max_allowed_parallelism, threads);
  }
  const int threads;
  std::optional<tbb::global_control> limit;  // lifts TBB's own, for more threads than cores
  tbb::task_arena arena;
};

LeafPool::LeafPool(int threads) : impl_(std::make_unique<Impl>(threads)) {}
LeafPool::~LeafPool() = default;
int LeafPool::threads() const {
  return impl_->threads;
}

void LeafPool::run(size_t leaves, void (*share)(void* context, size_t first, size_t last),
                   void* context) const {
  if (impl_->threads == 1 || leaves <= 1) return share(context, 0, leaves);
  using Range = tbb::blocked_range<size_t>;
  impl_->arena.execute([&] {
    tbb::parallel_for(
        Range(0, leaves), [&](const Range& range) { share(context, range.begin(), range.end()); },
        tbb::static_partitioner());
  });
}

}  // namespace sluice::cpu_adam
