// What the ranks of a step tell each other before its gate: losses, leaf norms of their shards, and whether one wants to stop.
#pragma once
#include <functional>

#include "engine/comm/control.h"
#include "engine/step.h"
#include "engine/step_shape.h"

namespace sluice::engine {

class StepExchange {
 public:
  // stop: does this rank want to stop? Control outlives the object.
  StepExchange(const StepShape& shape, comm::Control& control, std::function<bool()> stop);

  // Completes the step's losses (those of all ranks, in rank order, which is the order of global micro-batches) and leaf sums. Collective.
  // Returns whether any rank wants to stop. Error(peer).
  bool run(Step& step) const;

 private:
  struct Leaves {
    uint32_t first, count;  // in Step::leaf_sums
  };
  const StepShape& shape_;
  comm::Control& control_;
  const std::function<bool()> stop_;
  std::vector<std::vector<Leaves>> shards_;  // by rank; empty where every rank has all sums
};

}  // namespace sluice::engine
