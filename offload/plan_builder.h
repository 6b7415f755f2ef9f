// Generates the plan of a training step, and of an evaluation pass.
#pragma once
#include <optional>
#include <vector>

#include "offload/layout.h"
#include "offload/plan.h"

namespace sluice::offload {

struct PoolSizes {  // 0: default of docs/design.md, capped at what the model can use
  uint32_t weights = 0, state = 0, gradients = 0;
  uint32_t device_slots = 2;
};

struct PlanOptions {
  uint32_t micro_batches = 1;
  Tier weights = Tier::nvme;
  Tier state = Tier::nvme;
  bool write_weights = true;   // durable: step, or nvme tier
  bool write_state = true;
  bool commit = true;          // flush, agree, publish each period (durable: step)
  Placement placement = Placement::none;
  double spread = 0.25;        // share of deferred tiles for Placement::spread
  PoolSizes pools;
  uint32_t keep_weights = 0;   // last layers whose device weights stay from forward to backward
  uint32_t keep_graphs = 0;    // last layers whose graph stays (implies their weights stay)
  uint32_t lane_width = 4;
};

// One training step. Weights of tier none are resident on the device: no read, no CopyIn for forward and backward; an updated
// tile is copied in once after its Update. State of tier none: gradients stay on the device (no copy_out), Norm and Update
// run there. Tiers cpu: tiles have a home in RAM and no ring.
// Frozen tiles are read and copied in like trainable ones, from the base file, and never updated. Blocks below the lowest
// trainable parameter have no Backward.
Plan build_train_plan(const Layout& layout, const PlanOptions& options);

// Forward and Loss only, no gradients. One period is one group of micro-batches.
Plan build_eval_plan(const Layout& layout, const PlanOptions& options);

}  // namespace sluice::offload
