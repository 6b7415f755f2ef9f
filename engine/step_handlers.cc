#include "engine/step_handlers.h"

#include "base/error.h"

namespace sluice::engine {

using offload::OpKind;

StepHandlers::StepHandlers(const StepShape& shape, ComputeOps& compute, TransferOps& transfer, UpdateOps* update,
                           offload::Store& store, StepSource& source, const Options& options)
    : shape_(shape), compute_(compute), transfer_(transfer), update_(update), store_(store), source_(source), options_(options) {
  hashes_.resize(2 * shape.layout().tiles().size());
  for (const auto& tile : shape.layout().tiles()) updates_ += tile.trainable ? 1 : 0;
}

void StepHandlers::set_slots(uint64_t first_period, const Slots& slots) {
  first_period_ = first_period;
  newest_ = slots;
}

bool StepHandlers::begin_period(uint64_t period) {
  Step& s = step(period);
  s = Step{};
  // Otherwise the gate of the period before says, and perhaps it has already.
  if (update_ == nullptr || period == first_period_) slots(period) = newest_;
  if (!source_.begin(period, s)) return false;
  s.losses.assign(shape_.options().micro_batches, 0);
  if (update_ != nullptr) {
    s.leaf_sums.assign(update_->leaf_count(), 0);
    s.hashes.assign(hashes_.size(), 0);
    s.updates_left = updates_;
  }
  return true;
}

void StepHandlers::enqueue(const offload::OpRun& run, gpu::Stream& stream) {
  switch (run.op().kind) {
    case OpKind::copy_in: return transfer_.copy_in(run, stream);
    case OpKind::copy_out: return transfer_.copy_out(run, stream);
    default: return compute_.enqueue(run, step(run.period), stream);
  }
}

std::optional<offload::OpHandlers::DiskRequest> StepHandlers::request(const offload::OpRun& run) {
  return transfer_.request(run, step(run.period), slots(run.period));
}

void StepHandlers::run(const offload::OpRun& run) {
  Step& s = step(run.period);
  switch (run.op().kind) {
    case OpKind::norm: return update_->norm(run, s);
    case OpKind::gate: update_->gate(s); return after_gate(run.period);
    case OpKind::update: return update_->update(run, s);
    case OpKind::flush: return flush(s);
    case OpKind::agree: return;  // one rank agrees with itself
    case OpKind::publish: return s.skipped ? store_.skip(s.meta) : store_.publish();
    default: base::fail(base::ErrorKind::bug, "{} has no host work", run.plan->name(run.index));
  }
}

// The next period reads what this one writes, unless this one is skipped.
void StepHandlers::after_gate(uint64_t period) {
  Step& s = step(period);
  const Slots now = slots(period);
  if (s.skipped) ++skipped_;
  s.meta.skipped = skipped_;
  if (!s.skipped) newest_ = {.read = now.write, .write = options_.alternate_slots ? now.read : now.write};
  slots(period + 1) = newest_;
}

void StepHandlers::flush(Step& s) {
  if (s.skipped) return;
  for (uint32_t tile = 0; tile < shape_.layout().tiles().size(); ++tile) {
    if (!shape_.layout().tiles()[tile].trainable) continue;
    store_.set_hash(tile, offload::Part::weights, s.hashes[2 * tile]);
    store_.set_hash(tile, offload::Part::state, s.hashes[2 * tile + 1]);
  }
  store_.prepare(s.meta);
}

void StepHandlers::done(const offload::OpRun& run) {
  source_.progress();
  Step& s = step(run.period);
  switch (run.op().kind) {
    case OpKind::publish: return source_.end(s);
    case OpKind::update:
      if (--s.updates_left == 0) {
        if (!s.skipped) hashes_ = s.hashes;
        if (!options_.commits) source_.end(s);
      }
      return;
    case OpKind::loss:
      if (update_ == nullptr && run.op().last_micro) source_.end(s);
      return;
    default: return;
  }
}


}  // namespace sluice::engine
