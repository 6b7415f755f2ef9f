#include "engine/step_runner.h"

#include "offload/plan_follow_up.h"

namespace sluice::engine {

using offload::Executor;
using offload::Plan;

StepPlans::StepPlans(const offload::Layout& layout, const offload::PlanOptions& options)
    : train(offload::build_train_plan(layout, options)),
      settle(offload::build_settle_plan(layout, options, train)),
      redo(offload::build_redo_plan(layout, options, train)) {
  for (const Plan* plan : {&train, &settle, &redo})
    if (!plan->ops.empty()) check_plan(*plan);
}

TrainPlans::TrainPlans(const offload::Layout& layout, const offload::PlanOptions& options, bool adaptive) : chosen(layout, options) {
  if (!adaptive || !chosen.guesses()) return;
  offload::PlanOptions other = options;
  other.placement = offload::Placement::forward;
  deferred.emplace(layout, other);
}

std::vector<const Plan*> TrainPlans::all() const {
  std::vector<const Plan*> plans{&chosen.train, &chosen.settle, &chosen.redo};
  if (deferred) plans.insert(plans.end(), {&deferred->train, &deferred->settle});
  return plans;
}

StepRunner::Executors::Executors(const StepPlans& plans, StepHandlers& handlers, const Executor::Options& options)
    : train(plans.train, handlers, options), guesses(plans.guesses()) {
  if (!plans.settle.ops.empty()) settle.emplace(plans.settle, handlers, options);
  if (!plans.redo.ops.empty()) redo.emplace(plans.redo, handlers, options);
}

StepRunner::StepRunner(const TrainPlans& plans, StepHandlers& handlers, TrainSource& source, GuessPolicy* policy,
                       const Executor::Options& options)
    : handlers_(handlers), source_(source), policy_(policy), chosen_(plans.chosen, handlers, options) {
  if (plans.deferred) deferred_ = std::make_unique<Executors>(*plans.deferred, handlers, options);
}

offload::StepMeta StepRunner::run(const offload::StepMeta& meta, uint64_t end) {
  uint64_t period = meta.step;
  offload::StepMeta done = meta;
  do {
    Executors& executors = current();
    std::vector<Executor*> all{&executors.train};
    for (auto* other : {&executors.settle, &executors.redo})
      if (*other) all.push_back(&**other);
    source_.start(done, end, std::move(all));
    const uint64_t next = run_steps(executors, period);
    done = source_.meta();
    if (next == period) break;
    period = next;
  } while (period < end && !source_.stop_requested());
  source_.start(done, end, {});
  return done;
}

// Up to the end, a stop, or a change of policy; returns the period after the last one.
uint64_t StepRunner::run_steps(Executors& executors, uint64_t first) {
  handlers_.start(first, &executors.train, executors.guesses, policy_);
  uint64_t period = first;
  for (;;) {
    const uint64_t done = executors.train.run(period);
    period += done;
    if (done == 0 || !handlers_.redo_wanted(period - 1)) break;
    follow_up(executors.redo.value(), period);
    if (&current() != &executors) break;
    handlers_.go_on(period);
  }
  if (executors.settle && period > first) follow_up(*executors.settle, period);
  return period;
}

void StepRunner::follow_up(Executor& executor, uint64_t period) {
  handlers_.start_follow_up(period);
  executor.run(period);
}

}  // namespace sluice::engine
