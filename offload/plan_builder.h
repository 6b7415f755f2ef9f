// Generates the plan of a training step, and of an evaluation pass.
#pragma once
#include <cstdint>

#include "offload/layout.h"
#include "offload/plan.h"

namespace sluice::offload {

// Buffers of the rings, in tiles. 0: the default. All are capped at what the model can use.
struct PoolSizes {
  uint32_t weights =
      0;  // 16; and where tiles are held from backward to write 2 layers + the largest block more
  uint32_t state = 0;         // 32
  uint32_t gradients = 0;     // all tiles: gradients stay until their Update
  uint32_t device_slots = 2;  // layers on the device
};

struct PlanOptions {
  uint32_t micro_batches = 1;
  Tier weights = Tier::nvme;
  Tier state = Tier::nvme;
  bool write_weights = true;  // durable: step, or nvme tier
  bool write_state = true;
  bool commit = true;  // flush, agree, publish each period (durable: step)
  Placement placement = Placement::none;
  double spread = 0.25;  // share of deferred tiles for Placement::spread
  PoolSizes pools;
  uint32_t keep_weights = 0;  // last layers whose device weights stay from forward to backward
  uint32_t keep_graphs = 0;   // last layers whose graph stays (implies their weights stay)
  uint32_t lane_width = 4;    // of the disk lanes
  uint32_t pinned_tiles = 0;  // first tiles of the layout: those of tier nvme live in RAM, never read, still written
  // First blocks whose weights, state and gradients are device memory whatever the tiers say: read once, and nothing of them moves.
  uint32_t resident_blocks = 0;
  // Tiles from this one on whose weights and state live in RAM have a shadow there: a spare of the old state where no step is committed.
  uint32_t first_shadow = UINT32_MAX;
  uint32_t wire_bytes = 0;    // of one gradient element off the device; 0: of the compute type
  // Of each boundary tensor, where they live on the host; 0: on the device, and no operation moves them.
  uint64_t host_boundary_bytes = 0;
  uint32_t rank = 0;        // of layout.world() ranks
  uint32_t zero_stage = 3;  // what is sharded over several ranks: 1 the state, 2 gradients too, 3 weights too; 0 nothing
};

// Does this rank keep the state of the tile, and update it?
bool owns(const Layout& layout, const PlanOptions& options, uint32_t tile);

// Where a tile is read from: the state, and the master weights (of weights tier none they live with the state).
bool state_on_disk(const Layout& layout, const PlanOptions& options, uint32_t tile);
bool master_on_disk(const Layout& layout, const PlanOptions& options, uint32_t tile);

// How many of the first tiles `bytes` of RAM can pin: what of each is on nvme.
uint32_t count_pinned(const Layout& layout, const PlanOptions& options, uint64_t bytes);

// Does the tile have a shadow, which its updates on a guess fill?
bool has_shadow(const Layout& layout, const PlanOptions& options, uint32_t tile);
// The first_shadow that `bytes` of RAM allow: the last tiles, whose gradients come first. UINT32_MAX: none.
uint32_t first_shadow(const Layout& layout, const PlanOptions& options, uint64_t bytes);

// One training step. Operations of block b in compute slot c: forward c = b, Loss c = L + 1, backward c = 2 L
// + 2 - b.
//
// Tiers. nvme: tiles go through rings. cpu: tiles have a home in RAM, no ring and no read. Weights none:
// resident on the device; no CopyIn for forward and backward, but one (visit update) of each updated tile
// into its resident place; the master hi lives with the state, so its tiles are read for Update when the
// state is on nvme. State none (needs weights none): every block is resident.
//
// Resident blocks have the operations of weights none and state cpu, which move no bytes: the engine runs them on device memory. Nothing
// writes their state in a step, so there can be no commit in each.
//
// Frozen tiles are read and copied in like trainable ones, from the base file, and never updated. Blocks
// below the lowest trainable parameter have no Backward; a wholly frozen block above it has one for its
// input's gradient only.
//
// Ranks. Each has a plan of the same collectives in the same order (lane comm); tiles are its own ones. Stage 3: a visit copies this rank's
// shard to the device, Gather makes the whole block of all shards. Stages 1 and 2: weights are resident (tier none), and GatherUpdated brings the
// updated shards of the others before a block's forward. In every stage Reduce rounds a block's gradient to the wire type and sums it over the
// ranks: into the own shard, in stage 0 into all of them. No collective of a step begins before the gate of the step before: ranks
// that end with a period have begun the same ones.
//
// Boundaries on the host: inputs of layers that a backward will need go to the host after they are made, and come back for it. Those of kept
// graphs stay on the device.
//
// Placements backward and spread update on a guess, which needs a spare of the old state: with commit the published slot, else a shadow.
// A tile with neither is deferred (as in forward).
//
// Error(config): impossible tiers, or impossible in the stage; commits with resident blocks; nothing to train. Pools too small are found by check_plan.
Plan build_train_plan(const Layout& layout, const PlanOptions& options);

// Forward and Loss only, no gradients. One period is one group of micro-batches. Weights come from the same
// places; of the tiers only `weights` matters.
Plan build_eval_plan(const Layout& layout, const PlanOptions& options);

}  // namespace sluice::offload
