#include "engine/step_exchange.h"

#include "base/error.h"

namespace sluice::engine {

StepExchange::StepExchange(const StepShape& shape, comm::Control& control, std::function<bool()> stop)
    : shape_(shape), control_(control), stop_(std::move(stop)), shards_(shape.layout().world()) {
  if (shape.options().zero_stage == 0) return;
  uint32_t first = 0;
  for (const auto& tile : shape.layout().tiles()) {
    if (!tile.trainable) continue;
    const auto count = static_cast<uint32_t>(shape.layout().leaves(tile));
    shards_[tile.shard].push_back({first, count});
    first += count;
  }
}

bool StepExchange::run(Step& step) const {
  std::vector<double> mine{stop_() ? 1.0 : 0.0};
  mine.insert(mine.end(), step.losses.begin(), step.losses.end());
  const auto at = [&](uint32_t leaf) { return step.leaf_sums.begin() + leaf; };
  for (const auto [first, count] : shards_[shape_.options().rank]) mine.insert(mine.end(), at(first), at(first + count));

  const std::vector<std::vector<double>> all = control_.gather(comm::Topic::step, std::span<const double>(mine));
  const size_t losses = step.losses.size();
  step.losses.clear();
  bool stop = false;
  for (size_t r = 0; r < all.size(); ++r) {
    size_t wanted = 1 + losses;
    for (const auto& leaves : shards_[r]) wanted += leaves.count;
    SLUICE_CHECK(all[r].size() == wanted, fmt::format("rank {} sent {} values before the gate of step {}, not {}", r, all[r].size(), step.number, wanted));
    auto next = all[r].begin();
    stop |= *next++ != 0;
    step.losses.insert(step.losses.end(), next, next + static_cast<std::ptrdiff_t>(losses));
    next += static_cast<std::ptrdiff_t>(losses);
    for (const auto [first, count] : shards_[r]) {
      std::copy_n(next, count, at(first));
      next += count;
    }
  }
  return stop;
}

}  // namespace sluice::engine
