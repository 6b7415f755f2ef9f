// Inside of the plan builder: one object per plan under construction.
#pragma once
#include <optional>
#include <vector>

#include "offload/layout.h"
#include "offload/plan.h"
#include "offload/plan_builder.h"

namespace sluice::offload {

class PlanBuilder {
 public:
  PlanBuilder(const Layout& layout, const PlanOptions& options, bool train);
  Plan build();

 private:
  // Operations of one trainable tile, -1 where the tier has none.
  struct TileOps {
    int32_t norm = -1, update = -1, write_weights = -1, write_state = -1;
    int32_t refresh = -1;  // CopyIn of the updated tile, weights of tier none
    bool deferred = false;
    std::optional<Use> held;  // host weights tile that the visit before left for Update
  };

  // plan_builder.cc
  void plan_tiles();
  uint32_t add(OpKind kind, Lane lane, Key key);
  uint32_t add_tile(OpKind kind, Lane lane, Key key, uint32_t tile, uint64_t bytes);
  void depend(uint32_t op, int32_t on, uint32_t periods);
  Use acquire(uint32_t op, Ring ring);
  void use(uint32_t op, const Use& use, uint32_t periods = 0);
  void size_rings();
  void size_weights();
  Op& op(uint32_t i) { return plan_.ops[i]; }
  const Tile& tile(uint32_t t) const { return layout_.tiles()[t]; }
  const BlockPlace& block(uint32_t b) const { return layout_.blocks()[b]; }
  std::vector<uint32_t> tiles_of(uint32_t b) const;  // trainable, then frozen
  float place_in_slot(uint32_t t) const;             // the third part of a tile's keys

  bool owned(uint32_t t) const { return owns(layout_, options_, t); }
  std::vector<uint32_t> owned_of(const std::vector<uint32_t>& tiles) const;

  // plan_builder_visits.cc: weights to the device, and compute
  struct Visited {
    std::optional<Use> slot;  // device slot; none when resident
    std::vector<std::pair<uint32_t, uint32_t>>
        after;  // (operation, periods) that the first computation waits for
    int32_t replicated = -1;  // GatherUpdated
  };
  Visited visit(uint32_t b, int32_t slot, Visit kind);
  void copy_in(uint32_t t, int32_t slot, Visit kind, Visited& visited);
  Ring slot_ring(uint32_t b) const;
  Use read_for_visit(uint32_t t, int32_t slot, Visit kind, uint32_t copy);
  void forwards();
  void loss();
  void backwards();
  // All micro-batches of a block; returns the operations.
  std::vector<uint32_t> compute(OpKind kind, uint32_t b, int32_t slot, const Visited& visited);
  // plan_builder_ranks.cc
  uint64_t of_others(uint32_t b, bool trainable) const;
  void gather(uint32_t b, int32_t slot, Visit kind, Visited& visited);
  void gather_updated(uint32_t b, int32_t slot, Visited& visited);
  // Reduces what slot `slot` left in the gradient of block b; the buffer of the result.
  Use reduce(uint32_t b, int32_t slot, uint32_t& last, const Use& gradient, bool tied_part);

  // plan_builder_boundaries.cc: where block inputs live on the host
  void pass_boundary(OpKind kind, uint32_t b, uint32_t j, uint32_t op);
  void save_boundary(uint32_t b, uint32_t j, uint32_t made_by);
  void load_boundary(uint32_t b, uint32_t j, uint32_t wanted_by);
  bool moves_boundary(uint32_t b) const;  // the input of block b is saved and loaded

  // The first micro-batch acquires, all use.
  std::optional<Use> gradient_buffer(const std::vector<uint32_t>& micro, uint32_t b);

  // plan_builder_updates.cc: gradients, norms, updates, writes
  void land(uint32_t b, int32_t slot, uint32_t last, const Use& gradient, bool tied_part);
  // from: the device buffer that `last` filled
  void land_tile(uint32_t t, int32_t slot, uint32_t last, const Use& from, bool tied_part);
  void place_update(uint32_t t, int32_t slot);
  std::optional<Use> weights_for_update(uint32_t t, int32_t slot);
  void place_writes(uint32_t t, const std::optional<Use>& weights, const std::optional<Use>& state);
  void place_refresh(uint32_t t, int32_t slot, const std::optional<Use>& weights);

  // plan_builder_tail.cc: updates after the gate, commit
  void updates_after_gate();
  void commit();

  bool on_device(uint32_t b) const { return b < options_.resident_blocks; }  // weights, state and gradients
  bool resident(uint32_t b) const { return options_.weights == Tier::none || on_device(b); }  // weights
  bool several_ranks() const { return layout_.world() > 1; }
  bool gathers() const { return several_ranks() && options_.zero_stage == 3; }
  bool replicates() const { return several_ranks() && (options_.zero_stage == 1 || options_.zero_stage == 2); }
  bool through_slots(uint32_t b) const { return !resident(b) || gathers(); }  // weights reach the device slots visit by visit
  bool updates_on_guess() const { return guesses(options_.placement); }
  bool kept(uint32_t b) const { return b >= first_kept_ && b < head_ && through_slots(b); }
  bool big(uint32_t b) const { return b == 0 || (b == head_ && !layout_.tied()); }
  int32_t loss_slot() const { return static_cast<int32_t>(head_); }
  int32_t backward_slot(uint32_t b) const {
    return 2 * static_cast<int32_t>(head_) - static_cast<int32_t>(b);
  }
  int32_t gate_slot() const { return 2 * static_cast<int32_t>(head_) + 1; }

  const Layout& layout_;
  const PlanOptions options_;
  const bool train_;
  const uint32_t head_;  // number of the last block: layers + 1
  uint32_t lowest_ = 0;  // lowest block with a Backward; train only
  uint32_t first_kept_ = 0;
  uint64_t wire_bytes_ = 0;
  Plan plan_;
  std::vector<TileOps> tiles_;  // by global tile
  std::array<uint32_t, kRings> acquired_{};
  int32_t gate_ = -1;
  int32_t first_forward_ = -1;
  std::optional<Use> tied_slot_;                // the embedding's device slot, kept for the loss
  std::vector<std::optional<Use>> kept_slots_;  // by block
  std::vector<uint32_t> previous_;              // last computation of each micro-batch
  std::vector<std::optional<Use>> inputs_;      // of the block to be computed next, by micro-batch: boundaries on the host
  std::vector<std::vector<uint32_t>> saved_;    // SaveBoundary by block and micro-batch
};

}  // namespace sluice::offload
