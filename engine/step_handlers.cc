#include "engine/step_handlers.h"

#include "base/error.h"
#include "gpu/trace_range.h"

namespace sluice::engine {

using offload::OpKind;

StepHandlers::StepHandlers(const StepShape& shape, ComputeOps& compute, TransferOps& transfer, UpdateOps* update,
                           offload::Store& store, StepSource& source, const Options& options)
    : shape_(shape), compute_(compute), transfer_(transfer), update_(update), store_(store), source_(source), options_(options) {
  hashes_.resize(2 * shape.layout().tiles().size());
  for (uint32_t t = 0; t < shape.layout().tiles().size(); ++t) updates_ += shape.layout().tiles()[t].trainable && shape.owns(t) ? 1 : 0;
}

// Deferred operations of the first period find a step before it that has nothing to update.
void StepHandlers::start(uint64_t first_period, offload::Executor* executor, bool guesses, GuessPolicy* policy) {
  executor_ = executor;
  guesses_ = guesses;
  policy_ = policy;
  step(first_period - 1) = Step{};
  step(first_period - 1).skipped = true;
  slots(first_period - 1) = newest_;
  go_on(first_period);
}

void StepHandlers::go_on(uint64_t first_period) {
  first_period_ = first_period;
  follow_up_.reset();
}

void StepHandlers::start_follow_up(uint64_t period) {
  follow_up_ = period;
  Step& s = step(period - 1);
  s.redone = s.redone || s.redo;
  s.redo = false;
}

bool StepHandlers::begin_period(uint64_t period) {
  if (follow_up_) return period == *follow_up_;
  Step& s = step(period);
  s = Step{};
  s.guessed = guesses_;
  // Without guesses the gate of the period before says, and perhaps it has already.
  if (update_ == nullptr || period == first_period_) {
    slots(period) = newest_;
  } else if (guesses_) {
    slots(period) = after(slots(period - 1));
  }
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
  const gpu::TraceRange range(run.plan->name(run.index));
  if (run.op().kind == OpKind::forward && run.op().block == 0 && run.op().micro == 0) begin_forward(run.period);
  switch (run.op().kind) {
    case OpKind::copy_in: return transfer_.copy_in(run, stream);
    case OpKind::copy_out: return transfer_.copy_out(run, stream);
    case OpKind::save_boundary: return transfer_.save_boundary(run, stream);
    case OpKind::load_boundary: return transfer_.load_boundary(run, stream);
    case OpKind::gather:
    case OpKind::gather_updated:
    case OpKind::reduce: return comm_->enqueue(run, stream);
    default: return compute_.enqueue(run, step(run.period), stream);
  }
}

void StepHandlers::begin_forward(uint64_t period) {
  if (update_ == nullptr || !options_.scaler.enabled()) return;
  Step& s = step(period);
  s.loss_scale = progress_.scale;
  source_.number_update(s, s.number - progress_.skipped);
}

std::optional<offload::OpHandlers::DiskRequest> StepHandlers::request(const offload::OpRun& run) {
  Step& s = step_of(run);
  const OpKind kind = run.op().kind;
  if (kind == OpKind::write_weights || kind == OpKind::write_state) {
    // A write on a guess does not look at the gate's verdict, which may be there or not: it goes to a slot that is not published.
    const bool on_guess = guesses_ && !run.op().previous_step;
    if (!on_guess && s.skipped) return std::nullopt;
    if (!s.writing) store_.begin_writes();
    s.writing = true;
  }
  if (kind == OpKind::read_state && s.number == 0) return std::nullopt;  // nothing to update
  return transfer_.request(run, slots(run.period - run.op().previous_step));
}

void StepHandlers::run(const offload::OpRun& run) {
  const gpu::TraceRange range(run.plan->name(run.index));
  Step& s = step_of(run);
  switch (run.op().kind) {
    case OpKind::norm: return update_->norm(run, s);
    case OpKind::gate:
      if (exchange_ != nullptr && exchange_->run(s)) source_.stop_before(run.period + kPeriodsAtWork);
      update_->gate(s);
      return after_gate(run.period);
    case OpKind::update: return update_->update(run, s);
    case OpKind::flush: return flush(s);
    case OpKind::agree: return;  // a part of publishing: ranks agree on what each has made durable
    case OpKind::publish: return publish(s);
    default: base::fail(base::ErrorKind::bug, "{} has no host work", run.plan->name(run.index));
  }
}

Slots StepHandlers::after(const Slots& accepted) const {
  return {.read = accepted.write, .write = options_.alternate_slots ? accepted.read : accepted.write};
}

// The next period reads what this one writes, unless this one is skipped.
void StepHandlers::after_gate(uint64_t period) {
  Step& s = step(period);
  const Slots now = slots(period);
  if (s.skipped) ++progress_.skipped;
  s.meta.skipped = progress_.skipped;
  if (options_.scaler.enabled()) {
    progress_.scale = options_.scaler.after(s.loss_scale, s.skipped);
    write_scale(progress_.scale, &s.meta);
  }
  if (!s.skipped) newest_ = after(now), changed_ = true;
  if (!guesses_) slots(period + 1) = newest_;
  const bool wrong = s.skipped || s.clip != 1.0;
  s.redo = guesses_ && wrong;
  if (policy_ != nullptr) policy_->add(wrong);
  if (s.redo || (policy_ != nullptr && policy_->guess() != guesses_)) executor_->end_after(period);
}

void StepHandlers::flush(Step& s) {
  if (s.skipped || s.redo || options_.timing_only) return;
  if (!s.writing) store_.begin_writes();  // a rank that owns nothing that is trained
  for (uint32_t tile = 0; tile < shape_.layout().tiles().size(); ++tile) {
    if (!shape_.layout().tiles()[tile].trainable || !shape_.in_own_store(tile)) continue;
    store_.set_hash(tile, offload::Part::weights, s.hashes[2 * tile]);
    store_.set_hash(tile, offload::Part::state, s.hashes[2 * tile + 1]);
  }
  store_.prepare(s.meta);
}

void StepHandlers::publish(Step& s) {
  if (s.number == 0 || s.redo || options_.timing_only) return;
  if (s.skipped) {
    store_.skip(s.meta);
  } else {
    store_.publish();
  }
}

// Without commits a step ends with its last update, or where all were made on a guess (or this rank has none) with its gate.
void StepHandlers::end_updated(const Step& s) {
  if (options_.commits || !s.gated || s.redo || s.updates_left > 0) return;
  if (!s.skipped) hashes_ = s.hashes;
  source_.end(s);
}

void StepHandlers::done(const offload::OpRun& run) {
  source_.progress();
  Step& s = step_of(run);
  switch (run.op().kind) {
    case OpKind::publish:
      if (s.number != 0 && !s.redo) source_.end(s);
      return;
    case OpKind::gate:
      s.gated = true;
      if (s.redo) s.updates_left = updates_;  // those on the guess are made again, the deferred ones are still to come
      return end_updated(s);
    case OpKind::update:
      if (s.number == 0) return;
      --s.updates_left;
      return end_updated(s);
    case OpKind::loss:
      compute_.loss_done(run, s);
      if (update_ == nullptr && run.op().last_micro) source_.end(s);
      return;
    default: return;
  }
}

}  // namespace sluice::engine
