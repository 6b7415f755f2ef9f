#include "offload/plan_builder.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "offload/plan_builder_parts.h"

namespace sluice::offload {
namespace {

using base::ErrorKind;
using base::fail;

constexpr uint32_t kWeightsTiles = 16;  // of the ring of tiles that are not held
constexpr uint32_t kStateTiles = 32;
constexpr uint32_t kLayerGradients = 2;  // device fp32 gradients: one at work, one leaving
constexpr uint32_t kBigGradients = 1;
constexpr uint32_t kLayerShards = 2;     // device: own shards on their way into a gather
constexpr uint32_t kLayerWires = 2;      // device: gradients at work in a reduction, or leaving
constexpr uint32_t kBoundariesBack = 2;  // device: inputs for the backward, one at work, one coming
constexpr uint32_t kCopyWidth = 2;

void check_stage(const Layout& layout, const PlanOptions& o) {
  if (layout.world() == 1 || o.zero_stage == 3) return;
  SLUICE_CHECK(o.zero_stage < 3 && o.rank < layout.world());
  if (o.zero_stage > 0 && o.weights != Tier::none)
    fail(ErrorKind::config,
         "zero_optimization.stage is {}, which keeps all weights on the device, but offload_param is {}: take stage 3, or set offload_param "
         "to none",
         o.zero_stage, to_string(o.weights));
  if (o.zero_stage == 0 && (o.weights == Tier::nvme || o.state == Tier::nvme))
    fail(ErrorKind::config,
         "zero_optimization.stage is 0, which keeps everything on every rank, but the store on nvme holds each rank's shard: take stage 1 or "
         "higher, or keep weights and state on none or cpu");
}

void check(const Layout& layout, const PlanOptions& o) {
  if (!layout.lowest_trainable_block())
    fail(ErrorKind::config, "no parameter is trainable; model.trainable must match at least one tensor");
  if (o.state == Tier::none && o.weights != Tier::none)
    fail(
        ErrorKind::config,
        "offload_optimizer is none (state on the device), but offload_param is {}: state on the device needs "
        "the weights there too. Set offload_param to none, or offload_optimizer to cpu or nvme",
        to_string(o.weights));
  if (o.commit && o.resident_blocks > 0)
    fail(ErrorKind::config,
         "execution.resident_blocks is {}: what lives on the device cannot be written out every step for now; set storage.durable to "
         "\"checkpoint\", or resident_blocks to 0",
         o.resident_blocks);
  check_stage(layout, o);
  SLUICE_CHECK(o.micro_batches > 0 && o.lane_width > 0);
  SLUICE_CHECK(o.spread >= 0 && o.spread <= 1, "share of deferred tiles");
  SLUICE_CHECK(o.write_state || o.state != Tier::nvme, "state on nvme is always written");
  const bool master_on_disk = o.weights == Tier::nvme || (o.weights == Tier::none && o.state == Tier::nvme);
  SLUICE_CHECK(o.write_weights || !master_on_disk, "weights on nvme are always written");
  SLUICE_CHECK(!o.commit || (o.write_weights && o.write_state), "a commit needs every extent written");
  SLUICE_CHECK(o.state != Tier::none || (!o.write_weights && !o.write_state),
               "state on the device is not written by a step");
}

}  // namespace

bool owns(const Layout& layout, const PlanOptions& o, uint32_t tile) {
  return layout.world() == 1 || o.zero_stage == 0 || layout.tiles()[tile].shard == o.rank;
}

namespace {
bool may_be_on_disk(const Layout& layout, const PlanOptions& o, uint32_t tile) {
  return tile >= o.pinned_tiles && layout.tiles()[tile].block >= o.resident_blocks;
}
}  // namespace

bool state_on_disk(const Layout& layout, const PlanOptions& o, uint32_t tile) {
  return o.state == Tier::nvme && may_be_on_disk(layout, o, tile);
}

bool master_on_disk(const Layout& layout, const PlanOptions& o, uint32_t tile) {
  return (o.weights == Tier::none ? o.state : o.weights) == Tier::nvme && may_be_on_disk(layout, o, tile);
}

uint32_t count_pinned(const Layout& layout, const PlanOptions& options, uint64_t bytes) {
  PlanOptions none = options;
  none.pinned_tiles = 0;
  uint64_t used = 0;
  for (uint32_t t = 0; t < layout.tiles().size(); ++t) {
    const Tile& tile = layout.tiles()[t];
    if (!owns(layout, options, t)) continue;
    // A frozen tile has no state, and of weights tier none no copy in RAM.
    if (master_on_disk(layout, none, t) && (tile.trainable || options.weights == Tier::nvme)) used += layout.weights_extent_bytes(tile);
    if (state_on_disk(layout, none, t) && tile.trainable) used += layout.state_extent_bytes(tile);
    if (used > bytes) return t;
  }
  return static_cast<uint32_t>(layout.tiles().size());
}

namespace {
// Weights and state in RAM, both, for the whole run.
bool in_ram(const Layout& layout, const PlanOptions& o, uint32_t t) {
  const Tile& tile = layout.tiles()[t];
  return o.state == Tier::cpu && o.weights != Tier::nvme && tile.trainable && owns(layout, o, t) && tile.block >= o.resident_blocks;
}
}  // namespace

bool has_shadow(const Layout& layout, const PlanOptions& o, uint32_t tile) {
  return guesses(o.placement) && !o.commit && tile >= o.first_shadow && in_ram(layout, o, tile);
}

uint32_t first_shadow(const Layout& layout, const PlanOptions& options, uint64_t bytes) {
  uint64_t used = 0;
  uint32_t first = UINT32_MAX;
  for (auto t = static_cast<uint32_t>(layout.tiles().size()); t-- > 0;) {
    if (!in_ram(layout, options, t)) continue;
    const Tile& tile = layout.tiles()[t];
    used += layout.weights_extent_bytes(tile) + layout.state_extent_bytes(tile);
    if (used > bytes) break;
    first = t;
  }
  return first;
}

PlanBuilder::PlanBuilder(const Layout& layout, const PlanOptions& options, bool train)
    : layout_(layout),
      options_(options),
      train_(train),
      head_(static_cast<uint32_t>(layout.blocks().size() - 1)) {
  const uint32_t layers = head_ - 1;
  first_kept_ = head_;
  kept_slots_.resize(head_ + 1);
  if (train) {
    lowest_ = layout.lowest_trainable_block().value();
    const uint32_t keep = std::min(std::max(options.keep_weights, options.keep_graphs), layers);
    first_kept_ = std::max(head_ - keep, lowest_);
  }
  wire_bytes_ = options.wire_bytes != 0 ? options.wire_bytes : weight_bytes(layout.schema());
  inputs_.resize(options.micro_batches);
  saved_.resize(head_ + 1);
}

Plan PlanBuilder::build() {
  if (train_) {
    gate_ = static_cast<int32_t>(add(OpKind::gate, Lane::update, {gate_slot(), 0, 0}));
    plan_tiles();
  }
  forwards();
  loss();
  if (train_) {
    backwards();
    if (options_.placement == Placement::none) updates_after_gate();
    if (options_.commit) commit();
  }
  order_plan(plan_);
  size_rings();
  plan_.widths.fill(1);
  for (size_t lane = 0; lane < kLanes; ++lane)
    if (is_disk_lane(static_cast<Lane>(lane))) plan_.widths[lane] = options_.lane_width;
  plan_.widths[static_cast<size_t>(Lane::h2d)] = plan_.widths[static_cast<size_t>(Lane::d2h)] = kCopyWidth;
  return std::move(plan_);
}

// Makes the operations that others refer to before their place is known.
void PlanBuilder::plan_tiles() {
  tiles_.resize(layout_.tiles().size());
  uint64_t number = 0;  // of the tile among the trainable ones
  for (uint32_t t = 0; t < tiles_.size(); ++t) {
    if (!tile(t).trainable || !owned(t)) continue;
    const double q = options_.spread;
    const bool share =
        std::floor(static_cast<double>(number + 1) * q) > std::floor(static_cast<double>(number) * q);
    ++number;
    TileOps& ops = tiles_[t];
    ops.deferred =
        options_.placement == Placement::forward ||
        (updates_on_guess() &&
         ((!options_.commit && !has_shadow(layout_, options_, t)) || (options_.placement == Placement::spread && share)));
    const uint64_t weights = layout_.weights_extent_bytes(tile(t)),
                   state = layout_.state_extent_bytes(tile(t));
    const uint64_t wire = tile(t).count * wire_bytes_;
    const auto make = [&](OpKind kind, Lane lane, uint64_t bytes) {
      return static_cast<int32_t>(add_tile(kind, lane, {}, t, bytes));
    };
    const bool stays = on_device(tile(t).block);
    ops.norm = make(OpKind::norm, Lane::update, wire);
    ops.update = make(OpKind::update, Lane::update, 2 * (weights + state) + wire);
    op(static_cast<uint32_t>(ops.norm)).on_device = op(static_cast<uint32_t>(ops.update)).on_device = stays;
    if (!ops.deferred && has_shadow(layout_, options_, t)) {
      op(static_cast<uint32_t>(ops.update)).shadow = Shadow::save;
      op(static_cast<uint32_t>(ops.update)).bytes += 2 * (weights + state);  // the time doubles (benchmarks/adam_bench)
    }
    if (options_.write_weights && !stays)
      ops.write_weights = make(OpKind::write_weights, Lane::disk_write_weights, weights);
    if (options_.write_state && !stays) ops.write_state = make(OpKind::write_state, Lane::disk_write_state, state);
    if (resident(tile(t).block)) {
      ops.refresh = make(OpKind::copy_in, Lane::h2d, stays ? 0 : weights);
      op(ops.refresh).visit = Visit::update;
      op(static_cast<uint32_t>(ops.refresh)).on_device = stays;
    }
  }
}

uint32_t PlanBuilder::add(OpKind kind, Lane lane, Key key) {
  Op& made = plan_.ops.emplace_back();
  made.kind = kind;
  made.lane = lane;
  made.key = key;
  return static_cast<uint32_t>(plan_.ops.size() - 1);
}

uint32_t PlanBuilder::add_tile(OpKind kind, Lane lane, Key key, uint32_t t, uint64_t bytes) {
  const uint32_t i = add(kind, lane, key);
  op(i).block = static_cast<int32_t>(tile(t).block);
  op(i).tile = static_cast<int32_t>(t);
  op(i).tile_in_block = static_cast<int32_t>(tile(t).index);
  if (!tile(t).trainable)
    op(i).tile_in_block += static_cast<int32_t>(block(tile(t).block).trainable_tiles.size());
  op(i).bytes = bytes;
  return i;
}

void PlanBuilder::depend(uint32_t i, int32_t on, uint32_t periods) {
  if (on >= 0) op(i).deps.push_back({static_cast<uint32_t>(on), periods});
}

Use PlanBuilder::acquire(uint32_t i, Ring ring) {
  const Use made{ring, acquired_[static_cast<size_t>(ring)]++, 0};
  op(i).uses.insert(op(i).uses.begin() + op(i).acquires++, made);
  return made;
}

void PlanBuilder::use(uint32_t i, const Use& what, uint32_t periods) {
  op(i).uses.push_back({what.ring, what.acquisition, periods});
}

std::vector<uint32_t> PlanBuilder::owned_of(const std::vector<uint32_t>& tiles) const {
  std::vector<uint32_t> own;
  std::copy_if(tiles.begin(), tiles.end(), std::back_inserter(own), [&](uint32_t t) { return owned(t); });
  return own;
}

std::vector<uint32_t> PlanBuilder::tiles_of(uint32_t b) const {
  std::vector<uint32_t> all = block(b).trainable_tiles;
  all.insert(all.end(), block(b).frozen_tiles.begin(), block(b).frozen_tiles.end());
  return owned_of(all);
}

// The tied head's norm shares its slot with the embedding's matrix: it goes first.
float PlanBuilder::place_in_slot(uint32_t t) const {
  const BlockPlace& owner = block(tile(t).block);
  auto n = static_cast<float>(tile(t).index);
  if (!tile(t).trainable) n += static_cast<float>(owner.trainable_tiles.size());
  if (layout_.tied() && tile(t).block == head_)
    n -= static_cast<float>(owner.trainable_tiles.size() + owner.frozen_tiles.size());
  return n;
}

void PlanBuilder::size_rings() {
  const auto set = [&](Ring ring, uint32_t size) {
    RingInfo& info = plan_.rings[static_cast<size_t>(ring)];
    info.size = std::min(size, info.acquisitions);
  };
  const auto all = [&](Ring ring) { set(ring, UINT32_MAX); };
  const PoolSizes& pools = options_.pools;
  size_weights();
  set(Ring::state, pools.state != 0 ? pools.state : kStateTiles);
  set(Ring::gradients, pools.gradients != 0 ? pools.gradients : UINT32_MAX);
  all(Ring::device_gradients);
  all(Ring::tied_gradients);
  set(Ring::device_layer, pools.device_slots != 0 ? pools.device_slots : 2);
  set(Ring::device_big, 1);
  all(Ring::device_kept);
  set(Ring::grad_layer, kLayerGradients);
  set(Ring::grad_big, kBigGradients);
  set(Ring::shard_layer, kLayerShards);
  set(Ring::shard_big, 1);
  // Stage 1 shards the state alone: each rank keeps the whole gradient until its step ends.
  const bool whole_gradient = options_.zero_stage == 1;
  set(Ring::wire_layer, whole_gradient ? UINT32_MAX : kLayerWires);
  set(Ring::wire_big, whole_gradient ? UINT32_MAX : 1);
  set(Ring::boundary_even, options_.micro_batches);
  set(Ring::boundary_odd, options_.micro_batches);
  set(Ring::boundary_back, kBoundariesBack);
}

// The pool of weights tiles is shared out between the ring of held tiles and the other one. An evaluation takes no more of the other one than is
// usual: with the tiles that training holds it would be more than the pool.
void PlanBuilder::size_weights() {
  RingInfo& held = plan_.rings[static_cast<size_t>(Ring::weights_held)];
  RingInfo& other = plan_.rings[static_cast<size_t>(Ring::weights)];
  const uint32_t pool = options_.pools.weights;
  if (held.acquisitions == 0) {
    const uint32_t wanted = pool == 0 ? kWeightsTiles : train_ ? pool : std::min(pool, kWeightsTiles);
    other.size = std::min(wanted, other.acquisitions);
    return;
  }
  if (pool != 0) {
    other.size = std::min({kWeightsTiles, std::max(1u, pool / 4), other.acquisitions});
    held.size = std::min(std::max(pool, other.size + 1) - other.size, held.acquisitions);
    return;
  }
  uint32_t layer = 0, largest = 0;
  for (uint32_t b = 1; b <= head_; ++b) {
    uint32_t n = 0;
    for (uint32_t t : block(b).trainable_tiles) n += tiles_[t].held.has_value();
    if (b < head_) layer = std::max(layer, n);
    largest = std::max(largest, n);
  }
  other.size = std::min(kWeightsTiles, other.acquisitions);
  held.size = std::min(2 * layer + largest, held.acquisitions);
}

Plan build_train_plan(const Layout& layout, const PlanOptions& options) {
  check(layout, options);
  return PlanBuilder(layout, options, true).build();
}

Plan build_eval_plan(const Layout& layout, const PlanOptions& options) {
  SLUICE_CHECK(options.micro_batches > 0 && options.lane_width > 0);
  return PlanBuilder(layout, options, false).build();
}

}  // namespace sluice::offload
