#include <algorithm>
#include <set>

#include "base/error.h"
#include "offload/plan_data_check.h"

namespace sluice::offload {
namespace {

using base::ErrorKind;
using base::fail;
using Rings = std::initializer_list<Ring>;

constexpr Rings kHostWeights = {Ring::weights_held, Ring::weights};
constexpr Rings kDeviceSlots = {Ring::device_layer, Ring::device_big, Ring::device_kept};
constexpr Rings kDeviceGradients = {Ring::grad_layer, Ring::grad_big};
constexpr Rings kShards = {Ring::shard_layer, Ring::shard_big};
constexpr Rings kWires = {Ring::wire_layer, Ring::wire_big};
constexpr Rings kInputs = {Ring::boundary_even, Ring::boundary_odd};
constexpr Rings kHostGradients = {Ring::gradients, Ring::device_gradients, Ring::tied_gradients};

class UseCheck {
 public:
  explicit UseCheck(const Plan& plan) : plan_(plan) {
    for (const Op& op : plan.ops) {
      if (op.kind == OpKind::update) trained_.insert(op.block);
      tied_ |= op.tied_part;
      if (op.kind == OpKind::gather || (op.kind == OpKind::copy_in && op.visit != Visit::update)) brought_.insert(op.block);
      gathers_ |= op.kind == OpKind::gather;
      reduces_ |= op.kind == OpKind::reduce;
    }
  }

  void run() const {
    for (uint32_t i = 0; i < plan_.ops.size(); ++i) {
      check_fillers(i);
      if (!plan_.follow_up) check_moved(i);  // a redo also reads into homes in RAM
      if (op(i).lane == Lane::compute) check_compute(i);
    }
    check_micro_batches();
  }

 private:
  const Op& op(uint32_t i) const { return plan_.ops[i]; }

  // Does `user` use the same buffer as `filler` of these rings, if the filler uses one? Its own, of this or
  // an earlier period.
  void same(uint32_t user, uint32_t filler, Rings rings) const {
    const Use* filled = find_use(op(filler), rings);
    if (filled == nullptr) return;
    const Use* use = find_use(op(user), filled->ring);
    if (use == nullptr || use->acquisition != filled->acquisition)
      fail(ErrorKind::bug, "{} does not name the buffer of {} that it works on", plan_.name(user),
           plan_.name(filler));
  }

  void some(uint32_t i, Rings rings, const char* what) const {
    if (find_use(op(i), rings) == nullptr) fail(ErrorKind::bug, "{} names no {}", plan_.name(i), what);
  }

  // Whoever waits for an operation that fills a tile works on that tile.
  void check_fillers(uint32_t i) const {
    for (const Dep& dep : op(i).deps) {
      const Op& filler = op(dep.op);
      const OpKind kind = op(i).kind;
      if (filler.kind == OpKind::copy_out) same(i, dep.op, kHostGradients);
      if (kind == OpKind::update && filler.kind == OpKind::norm)
        same(i, dep.op, {Ring::gradients, Ring::device_gradients}), same(i, dep.op, {Ring::tied_gradients});
      if (dep.periods != 0) continue;
      if (filler.kind == OpKind::copy_in) same(i, dep.op, kDeviceSlots), same(i, dep.op, kShards);
      if (filler.kind == OpKind::gather) same(i, dep.op, kDeviceSlots);
      if (filler.kind == OpKind::reduce && kind == OpKind::copy_out) same(i, dep.op, kWires);
      if (filler.kind == OpKind::load_boundary) same(i, dep.op, {Ring::boundary_back});
      if (kind == OpKind::save_boundary) same(i, dep.op, {find_use(op(i), kInputs)->ring});
      if (filler.tile != op(i).tile) continue;
      if (filler.kind == OpKind::read_weights) same(i, dep.op, kHostWeights);
      if (filler.kind == OpKind::read_state) same(i, dep.op, {Ring::state});
      if (filler.kind != OpKind::update) continue;
      if (kind == OpKind::write_weights || kind == OpKind::copy_in) same(i, dep.op, kHostWeights);
      if (kind == OpKind::write_weights) same(dep.op, i, kHostWeights);
      if (kind == OpKind::write_state) same(i, dep.op, {Ring::state});
    }
  }

  void check_moved(uint32_t i) const {
    switch (op(i).kind) {
      case OpKind::read_weights:
        return some(i, kHostWeights, "host tile");
      case OpKind::read_state:
        return some(i, {Ring::state}, "host tile");
      case OpKind::copy_out:
        return some(i, kHostGradients, "gradient tile"), some(i, reduces_ ? kWires : kDeviceGradients, "device gradient");
      case OpKind::copy_in:
        if (op(i).visit != Visit::update) some(i, gathers_ ? kShards : kDeviceSlots, "device slot");
        return;
      case OpKind::gather:
        return some(i, kDeviceSlots, "device slot");
      case OpKind::reduce:
        return some(i, kWires, "wire gradient"), some(i, kDeviceGradients, "device gradient");
      case OpKind::save_boundary:
        return some(i, kInputs, "block input");
      case OpKind::load_boundary:
        return some(i, {Ring::boundary_back}, "block input");
      default:
        return;
    }
  }

  void check_compute(uint32_t i) const {
    const bool loss = op(i).kind == OpKind::loss;
    const bool embedding_backward = op(i).kind == OpKind::backward && op(i).block == 0;  // needs no weights
    if (brought_.count(op(i).block) != 0 && !embedding_backward) some(i, kDeviceSlots, "device slot");
    if (brought_.count(0) != 0 && loss && tied_) some(i, {Ring::device_big}, "slot of the tied matrix");
    if (op(i).kind == OpKind::forward) return;
    if (trained_.count(op(i).block) != 0) some(i, kDeviceGradients, "device gradient");
    if (loss && tied_) some(i, {Ring::grad_big}, "gradient of the tied matrix");
  }

  // All micro-batches of a block work on the same buffers, but for their own inputs.
  void check_micro_batches() const {
    const auto& lane = plan_.order[static_cast<size_t>(Lane::compute)];
    for (size_t n = 1; n < lane.size(); ++n) {
      const Op &a = op(lane[n - 1]), &b = op(lane[n]);
      if (a.kind != b.kind || a.block != b.block) continue;
      const std::vector<Use> of_a = of_block(a), of_b = of_block(b);
      if (!std::is_permutation(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), [](const Use& x, const Use& y) {
            return x.ring == y.ring && x.acquisition == y.acquisition && x.periods == y.periods;
          }))
        fail(ErrorKind::bug, "{} and {} work on different buffers", plan_.name(lane[n - 1]),
             plan_.name(lane[n]));
    }
  }

  static std::vector<Use> of_block(const Op& op) {
    std::vector<Use> uses = op.uses;
    std::erase_if(uses, [](const Use& use) { return use.ring >= Ring::boundary_even; });
    return uses;
  }

  const Plan& plan_;
  std::set<int32_t> trained_;  // blocks with an Update
  bool tied_ = false;          // the tied matrix has gradients
  std::set<int32_t> brought_;  // blocks whose weights come into device slots
  bool gathers_ = false;       // of shards
  bool reduces_ = false;       // gradients are summed over ranks
};

}  // namespace

void check_uses(const Plan& plan) {
  UseCheck(plan).run();
}

}  // namespace sluice::offload
