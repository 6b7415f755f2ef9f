#include "offload/plan_data_check.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/error.h"

namespace sluice::offload {
namespace {

using base::ErrorKind;
using base::fail;

constexpr std::initializer_list<Ring> kHostWeights = {Ring::weights_held, Ring::weights};
constexpr std::initializer_list<Ring> kDeviceSlots = {Ring::device_layer, Ring::device_big,
                                                      Ring::device_kept};

bool is_compute(const Op& op) {
  return op.lane == Lane::compute;
}

struct TileOps {
  std::optional<uint32_t> norm, update, write_weights, write_state, refresh;
  std::vector<uint32_t> visit_reads, update_reads, state_reads, visit_copies, copy_outs;
};

class DataCheck {
 public:
  DataCheck(const Plan& plan, const PlanOrder& order) : plan_(plan), order_(order) { collect(); }

  void run() {
    check_buffers();
    if (gate_)
      for (uint32_t i : plan_.order[static_cast<size_t>(Lane::compute)])
        need(*gate_, i, 1, "a rejected update is redone first");
    if (gate_)
      for (uint32_t i : plan_.order[static_cast<size_t>(Lane::comm)])
        need(*gate_, i, 1, "ranks that end with a period have begun the same collectives");
    for (const auto& [block, updated] : gathers_updated_) check_replicas(block, updated);
    for (const auto& [tile, ops] : tiles_) check_tile(ops);
    check_commit();
  }

 private:
  const Op& op(uint32_t i) const { return plan_.ops[i]; }

  void need(uint32_t x, uint32_t y, uint32_t periods, const char* why) const {
    if (plan_.follow_up && periods > 0) return;  // there is no next period
    if (!order_.before(x, y, periods))
      fail(ErrorKind::bug, "{} need not be done before {}{}: {}", plan_.name(x), plan_.name(y),
           periods == 0 ? "" : " of the next period", why);
  }

  void once(std::optional<uint32_t>& place, uint32_t i) const {
    if (place) fail(ErrorKind::bug, "{} is there twice", plan_.name(i));
    place = i;
  }

  void collect();
  void check_buffers() const;
  void check_users(Ring ring, const std::vector<std::pair<uint32_t, uint32_t>>& users,
                   uint32_t acquirer) const;
  void check_tile(const TileOps& ops) const;
  void check_gradient(const TileOps& ops, uint32_t late) const;
  void check_weights(const TileOps& ops, uint32_t age) const;
  void check_homes(const TileOps& ops, uint32_t age) const;
  void check_replicas(int32_t block, uint32_t updated) const;
  void check_commit() const;
  uint32_t lateness(const TileOps& ops) const;

  const Plan& plan_;
  const PlanOrder& order_;
  std::map<int32_t, TileOps> tiles_;
  std::map<int32_t, std::vector<uint32_t>> gathers_;  // by block
  std::map<int32_t, uint32_t> gathers_updated_;
  std::optional<uint32_t> gate_, flush_, agree_, publish_;
};

void DataCheck::collect() {
  for (uint32_t i = 0; i < plan_.ops.size(); ++i) {
    const OpKind kind = op(i).kind;
    if (kind == OpKind::gate) once(gate_, i);
    if (kind == OpKind::flush) once(flush_, i);
    if (kind == OpKind::agree) once(agree_, i);
    if (kind == OpKind::publish) once(publish_, i);
    if (kind == OpKind::gather) gathers_[op(i).block].push_back(i);
    if (kind == OpKind::gather_updated && !gathers_updated_.emplace(op(i).block, i).second)
      fail(ErrorKind::bug, "{} is there twice", plan_.name(i));
    if (op(i).tile < 0) continue;
    TileOps& ops = tiles_[op(i).tile];
    const bool for_update = op(i).visit == Visit::update;
    switch (kind) {
      case OpKind::read_weights:
        (for_update ? ops.update_reads : ops.visit_reads).push_back(i);
        break;
      case OpKind::read_state:
        ops.state_reads.push_back(i);
        break;
      case OpKind::copy_in:
        for_update ? once(ops.refresh, i) : ops.visit_copies.push_back(i);
        break;
      case OpKind::copy_out:
        ops.copy_outs.push_back(i);
        break;
      case OpKind::norm:
        once(ops.norm, i);
        break;
      case OpKind::update:
        once(ops.update, i);
        break;
      case OpKind::write_weights:
        once(ops.write_weights, i);
        break;
      case OpKind::write_state:
        once(ops.write_state, i);
        break;
      default:
        break;
    }
  }
}

// Every use is after the acquisition, of the same tile or block, and sees the buffer full.
void DataCheck::check_buffers() const {
  struct Buffer {
    uint32_t acquirer = 0;
    std::vector<std::pair<uint32_t, uint32_t>> users;  // operation, periods later
  };
  std::array<std::vector<Buffer>, kRings> rings;
  for (size_t r = 0; r < kRings; ++r) rings[r].resize(plan_.rings[r].acquisitions);
  for (uint32_t i = 0; i < plan_.ops.size(); ++i)
    for (size_t u = 0; u < op(i).uses.size(); ++u) {
      const Use& use = op(i).uses[u];
      if (plan_.given(use.ring)) continue;
      Buffer& buffer = rings[static_cast<size_t>(use.ring)][use.acquisition];
      if (u < op(i).acquires) buffer.acquirer = i;
      buffer.users.emplace_back(i, use.periods);
    }
  for (size_t r = 0; r < kRings; ++r)
    for (const Buffer& buffer : rings[r])
      if (!plan_.given(static_cast<Ring>(r))) check_users(static_cast<Ring>(r), buffer.users, buffer.acquirer);
}

void DataCheck::check_users(Ring ring, const std::vector<std::pair<uint32_t, uint32_t>>& users,
                            uint32_t acquirer) const {
  const bool of_tile = ring <= Ring::tied_gradients;
  const bool of_weights = ring >= Ring::device_layer && ring <= Ring::device_kept;
  const bool of_shard = ring == Ring::shard_layer || ring == Ring::shard_big;
  for (const auto& [user, periods] : users) {
    if (user != acquirer) need(acquirer, user, periods, "it fills the buffer that the other uses");
    if (of_tile && op(user).tile >= 0 && op(user).tile != op(acquirer).tile)
      fail(ErrorKind::bug, "{} uses the buffer of {}", plan_.name(user), plan_.name(acquirer));
    if ((of_weights || of_shard) && op(user).kind == OpKind::copy_in && op(user).block != op(acquirer).block)
      fail(ErrorKind::bug, "{} uses the device slot of {}", plan_.name(user), plan_.name(acquirer));
  }
  // Device slots: all CopyIns, or the Gather, before the computations. Device gradients: all computations before
  // the CopyOuts, or the Reduce. Shards: all CopyIns before the Gather.
  if (of_tile) return;
  const auto fills = [&](const Op& o) {
    return of_weights || of_shard ? o.kind == OpKind::copy_in || (of_weights && o.kind == OpKind::gather) : is_compute(o);
  };
  const auto takes = [&](const Op& o) {
    return of_weights ? is_compute(o) : of_shard ? o.kind == OpKind::gather : o.kind == OpKind::copy_out || o.kind == OpKind::reduce;
  };
  if (ring >= Ring::wire_layer) return;  // filled by the one that acquires them
  for (const auto& [filler, filled] : users) {
    if (!fills(op(filler))) continue;
    for (const auto& [user, used] : users)
      if (takes(op(user)))
        need(filler, user, used - filled, "the other needs all of the buffer");
  }
}

// 1: the gradient of the period before (deferred). Visits then see this period's Update, else the one before.
uint32_t DataCheck::lateness(const TileOps& ops) const {
  if (plan_.follow_up) return 0;
  if (!ops.norm) fail(ErrorKind::bug, "{} has no Norm", plan_.name(*ops.update));
  for (const Dep& dep : op(*ops.update).deps)
    if (dep.op == *ops.norm) return dep.periods;
  fail(ErrorKind::bug, "{} does not depend on its Norm", plan_.name(*ops.update));
}

void DataCheck::check_tile(const TileOps& ops) const {
  if (!ops.update) {
    if (ops.write_weights || ops.write_state || ops.norm || ops.refresh || !ops.copy_outs.empty())
      fail(ErrorKind::bug, "a tile without an Update has gradients or writes: {}",
           plan_.name(ops.norm.value_or(ops.write_weights.value_or(ops.write_state.value_or(0)))));
    return;
  }
  const uint32_t late = lateness(ops);
  if (!plan_.follow_up) check_gradient(ops, late);
  check_weights(ops, 1 - late);
  check_homes(ops, 1 - late);
  for (const std::optional<uint32_t>& write : {ops.write_weights, ops.write_state})
    if (write) need(*ops.update, *write, 0, "it makes what the other writes");
  for (uint32_t read : ops.state_reads) {
    if (!ops.write_state) fail(ErrorKind::bug, "{}: its state is never written", plan_.name(read));
    need(*ops.write_state, read, 1, "the state must be on disk");
    need(read, *ops.write_state, 0, "the old state is overwritten");
    need(read, *ops.update, 0, "it reads what the other updates");
  }
}

void DataCheck::check_gradient(const TileOps& ops, uint32_t late) const {
  if (ops.copy_outs.empty()) fail(ErrorKind::bug, "{} has no gradient", plan_.name(*ops.update));
  if (!gate_) fail(ErrorKind::bug, "a plan with updates has no Gate");
  for (uint32_t copy : ops.copy_outs) need(copy, *ops.norm, 0, "the norm needs the gradient");
  need(*ops.norm, *gate_, 0, "the gate needs all norms");
  need(*ops.norm, *ops.update, late, "the norm may reject the gradient");
  if (late == 1) need(*gate_, *ops.update, 1, "a deferred update needs the clip coefficient");
  if (late == 1 || order_.before(*gate_, *ops.update, 0)) return;
  if (!publish_ && op(*ops.update).shadow != Shadow::save)
    fail(ErrorKind::bug, "{} is made on a guess, and nothing keeps the old state", plan_.name(*ops.update));
  for (uint32_t copy : ops.copy_outs)  // an update on a guess
    if (const Use& wire = op(copy).uses[0];
        std::none_of(op(*gate_).uses.begin(), op(*gate_).uses.end(), [&](const Use& use) {
          return use.ring == wire.ring && use.acquisition == wire.acquisition;
        }))
      fail(ErrorKind::bug, "{} is made on a guess, but {} is not kept until the Gate",
           plan_.name(*ops.update), plan_.name(copy));
}

// A read names its generation. age: periods between an Update and the visits that see it.
void DataCheck::check_weights(const TileOps& ops, uint32_t age) const {
  for (uint32_t read : ops.visit_reads) {
    if (!ops.write_weights)
      fail(ErrorKind::bug, "{}: its weights are updated and never written", plan_.name(read));
    need(*ops.write_weights, read, age, "the weights must be on disk");
    need(read, *ops.write_weights, 1 - age, "the old weights are overwritten");
  }
  for (uint32_t read : ops.update_reads) {
    if (!ops.write_weights)
      fail(ErrorKind::bug, "{}: its weights are updated and never written", plan_.name(read));
    need(*ops.write_weights, read, 1, "the weights must be on disk");
    need(read, *ops.write_weights, 0, "the old weights are overwritten");
    need(read, *ops.update, 0, "it reads what the other updates");
  }
  for (uint32_t copy : ops.visit_copies) {
    const Use* source = find_use(op(copy), kHostWeights);
    const Use* updated = find_use(op(*ops.update), kHostWeights);
    const bool same = source != nullptr && updated != nullptr && source->ring == updated->ring &&
                      source->acquisition == updated->acquisition;
    if (source != nullptr && !same) continue;  // a read's, checked above
    if (age == 0 || source == nullptr) need(*ops.update, copy, age, "the visit sees the updated weights");
    if (age == 1) need(copy, *ops.update, 0, "the visit sees the weights before the update");
    if (age == 0) need(copy, *ops.update, 1, "the visit sees the weights before the next update");
  }
}

// Bytes that stay in one place, in RAM or on the device.
void DataCheck::check_homes(const TileOps& ops, uint32_t age) const {
  const Op& update = op(*ops.update);
  if (ops.write_weights && find_use(update, kHostWeights) == nullptr)
    need(*ops.write_weights, *ops.update, 1, "the home is written out");
  if (ops.write_state && find_use(update, Ring::state) == nullptr)
    need(*ops.write_state, *ops.update, 1, "the home is written out");
  if (!ops.refresh) return;
  need(*ops.update, *ops.refresh, 0, "it makes what the other copies");
  need(*ops.refresh, *ops.update, 1, "the other changes what is copied");
  if (const auto gathers = gathers_.find(update.block); gathers != gathers_.end()) {  // of resident shards
    for (uint32_t i : gathers->second) {
      need(*ops.refresh, i, age, "the visit sees the updated weights");
      need(i, *ops.update, 1 - age, "the visit sees the weights before the update");
    }
    return;
  }
  if (const auto updated = gathers_updated_.find(update.block); updated != gathers_updated_.end())
    need(*ops.refresh, updated->second, age, "the other ranks get the updated weights");
  for (uint32_t i : plan_.order[static_cast<size_t>(Lane::compute)]) {
    if (op(i).block != update.block) continue;
    if (find_use(op(i), kDeviceSlots) != nullptr)
      fail(ErrorKind::bug, "{} has a device slot beside its resident weights", plan_.name(i));
    need(*ops.refresh, i, age, "the computation sees the updated weights");
    need(i, *ops.update, 1 - age, "the computation sees the weights before the update");
  }
}

// Other ranks' updates reach resident weights between a step's last use of them and the next one's first.
void DataCheck::check_replicas(int32_t block, uint32_t updated) const {
  for (uint32_t i : plan_.order[static_cast<size_t>(Lane::compute)]) {
    if (op(i).block != block) continue;
    need(updated, i, 0, "the computation sees what other ranks have updated");
    need(i, updated, 1, "the computation sees the weights before the update");
  }
}

// The slot that a generation is written to is free once the generation before is published.
void DataCheck::check_commit() const {
  if (!flush_ && !agree_ && !publish_) return;
  if (!flush_ || !agree_ || !publish_) fail(ErrorKind::bug, "a commit is flush, agree and publish");
  need(*flush_, *agree_, 0, "only durable bytes are agreed on");
  need(*agree_, *publish_, 0, "only what was agreed on is published");
  bool any_late = false;
  for (const auto& [tile, ops] : tiles_) any_late |= ops.update && lateness(ops) == 1;
  if (gate_) need(*gate_, *flush_, any_late ? 1 : 0, "a rejected update is not published");
  for (const auto& [tile, ops] : tiles_) {
    if (!ops.update) continue;
    if (!ops.write_weights || !ops.write_state)
      fail(ErrorKind::bug, "{} is not written, but committed", plan_.name(*ops.update));
    const bool early = any_late && lateness(ops) == 0;  // the generation is completed in the next period
    for (uint32_t write : {*ops.write_weights, *ops.write_state}) {
      need(write, *flush_, early ? 1 : 0, "a commit has all writes of its generation");
      need(*publish_, write, early ? 0 : 1, "the slot is free once the generation before is published");
    }
  }
}

}  // namespace

void check_data(const Plan& plan, const PlanOrder& order) {
  DataCheck(plan, order).run();
}

}  // namespace sluice::offload
