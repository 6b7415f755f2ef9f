#include "offload/plan_follow_up.h"

#include <algorithm>
#include <optional>

namespace sluice::offload {
namespace {

class FollowUp {
 public:
  FollowUp(const Layout& layout, const PlanOptions& options, const Plan& train, bool redo)
      : layout_(layout), options_(options), train_(train), redo_(redo) {
    plan_.follow_up = true;
    plan_.widths = train.widths;
  }

  Plan build() {
    bool late = false;  // does the train plan commit with the deferred updates?
    for (const Op& op : train_.ops) late |= op.kind == OpKind::publish && op.previous_step;
    for (const Op& op : train_.ops) {
      if (op.kind == OpKind::update && (redo_ ? guesses(options_.placement) && !op.previous_step : op.previous_step)) updates_.push_back(&op);
    }
    std::sort(updates_.begin(), updates_.end(), [](const Op* a, const Op* b) { return a->tile < b->tile; });
    for (const Op* op : updates_) add_tile(*op);
    if (options_.commit && !updates_.empty() && (redo_ ? !late : late)) add_commit();
    for (const Ring ring : {Ring::gradients, Ring::device_gradients, Ring::tied_gradients}) info(ring) = train_.rings[static_cast<size_t>(ring)];
    order_plan(plan_);
    for (const Ring ring : {Ring::weights, Ring::state})
      info(ring).size = std::min(info(ring).acquisitions, std::max(1u, train_.rings[static_cast<size_t>(ring)].size));
    return std::move(plan_);
  }

 private:
  RingInfo& info(Ring ring) { return plan_.rings[static_cast<size_t>(ring)]; }
  Op& op(uint32_t i) { return plan_.ops[i]; }

  uint32_t add(OpKind kind, Lane lane, const Op& update, float phase, uint64_t bytes, int32_t sub = 0) {
    Op made;
    made.kind = kind;
    made.lane = lane;
    made.block = update.block;
    made.tile = update.tile;
    made.tile_in_block = update.tile_in_block;
    made.previous_step = true;
    made.bytes = bytes;
    made.key = {slot_, phase, 0, sub};
    plan_.ops.push_back(std::move(made));
    return static_cast<uint32_t>(plan_.ops.size() - 1);
  }

  // Tier nvme reads into a ring. Only a redo reads what has a home in memory.
  std::optional<Use> read(OpKind kind, Lane lane, const Op& trained, bool on_disk, Ring ring, uint64_t bytes) {
    if (!on_disk && !redo_) return std::nullopt;
    const uint32_t i = add(kind, lane, trained, 0, bytes);
    if (kind == OpKind::read_weights) op(i).visit = Visit::update;
    reads_.push_back(i);
    if (!on_disk) return std::nullopt;
    const Use made{ring, acquired_[static_cast<size_t>(ring)]++, 0};
    op(i).uses.push_back(made);
    op(i).acquires = 1;
    return made;
  }

  void add_tile(const Op& trained) {
    const auto index = static_cast<uint32_t>(trained.tile);
    const Tile& tile = layout_.tiles()[index];
    const uint64_t weight_bytes = layout_.weights_extent_bytes(tile), state_bytes = layout_.state_extent_bytes(tile);
    reads_.clear();
    const bool shadow = redo_ && trained.shadow == Shadow::save;
    std::optional<Use> weights, state;
    if (!shadow) {
      weights = read(OpKind::read_weights, Lane::disk_weights, trained, master_on_disk(layout_, options_, index), Ring::weights, weight_bytes);
      state = read(OpKind::read_state, Lane::disk_state, trained, state_on_disk(layout_, options_, index), Ring::state, state_bytes);
    }

    const bool stays = tile.block < options_.resident_blocks;
    const uint32_t update = add(OpKind::update, Lane::update, trained, 1, trained.bytes);
    op(update).on_device = stays;
    if (shadow) op(update).shadow = Shadow::restore;
    for (const uint32_t i : reads_) op(update).deps.push_back({i, 0});
    for (const Ring ring : {Ring::gradients, Ring::device_gradients, Ring::tied_gradients})
      if (const Use* use = find_use(trained, ring)) op(update).uses.push_back({ring, use->acquisition, 1});
    for (const auto& use : {weights, state})
      if (use) op(update).uses.push_back(*use);

    const auto after = [&](OpKind kind, Lane lane, uint64_t bytes, const std::optional<Use>& use) {
      const uint32_t i = add(kind, lane, trained, 2, bytes);
      op(i).deps.push_back({update, 0});
      if (use) op(i).uses.push_back(*use);
      return i;
    };
    if (options_.write_weights && !stays) writes_.push_back(after(OpKind::write_weights, Lane::disk_write_weights, weight_bytes, weights));
    if (options_.write_state && !stays) writes_.push_back(after(OpKind::write_state, Lane::disk_write_state, state_bytes, state));
    if (options_.weights == Tier::none || stays) {
      const uint32_t refresh = after(OpKind::copy_in, Lane::h2d, stays ? 0 : weight_bytes, weights);
      op(refresh).visit = Visit::update;
      op(refresh).on_device = stays;
    }
    ++slot_;
  }

  void add_commit() {
    int32_t before = -1;
    for (const OpKind kind : {OpKind::flush, OpKind::agree, OpKind::publish}) {
      Op made;
      made.kind = kind;
      made.lane = Lane::commit;
      made.previous_step = true;
      made.key = {slot_++, 0, 0};
      if (before >= 0) made.deps.push_back({static_cast<uint32_t>(before), 0});
      if (kind == OpKind::flush)
        for (const uint32_t write : writes_) made.deps.push_back({write, 0});
      plan_.ops.push_back(std::move(made));
      before = static_cast<int32_t>(plan_.ops.size() - 1);
    }
  }

  const Layout& layout_;
  const PlanOptions& options_;
  const Plan& train_;
  const bool redo_;
  Plan plan_;
  std::vector<const Op*> updates_;  // of the train plan
  std::vector<uint32_t> reads_;     // of the tile at work
  std::vector<uint32_t> writes_;
  std::array<uint32_t, kRings> acquired_{};
  int32_t slot_ = 0;
};

}  // namespace

Plan build_settle_plan(const Layout& layout, const PlanOptions& options, const Plan& train) {
  return FollowUp(layout, options, train, false).build();
}

Plan build_redo_plan(const Layout& layout, const PlanOptions& options, const Plan& train) {
  return FollowUp(layout, options, train, true).build();
}

}  // namespace sluice::offload
