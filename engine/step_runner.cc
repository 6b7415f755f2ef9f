#include "engine/step_runner.h"

#include "offload/plan_follow_up.h"

namespace sluice::engine {

TrainPlans::TrainPlans(const offload::Layout& layout, const offload::PlanOptions& options)
    : train(offload::build_train_plan(layout, options)),
      settle(offload::build_settle_plan(layout, options, train)),
      redo(offload::build_redo_plan(layout, options, train)) {
  for (const offload::Plan* plan : {&train, &settle, &redo})
    if (!plan->ops.empty()) check_plan(*plan);
}

StepRunner::StepRunner(const TrainPlans& plans, StepHandlers& handlers, TrainSource& source, const offload::Executor::Options& options)
    : handlers_(handlers), source_(source), train_(plans.train, handlers, options) {
  if (!plans.settle.ops.empty()) settle_.emplace(plans.settle, handlers, options);
  if (!plans.redo.ops.empty()) redo_.emplace(plans.redo, handlers, options);
}

offload::StepMeta StepRunner::run(const offload::StepMeta& meta, uint64_t end) {
  std::vector<offload::Executor*> executors{&train_};
  for (auto* other : {&settle_, &redo_})
    if (*other) executors.push_back(&**other);
  source_.start(meta, end, std::move(executors));
  handlers_.start(meta.step, &train_);
  uint64_t period = meta.step;
  for (;;) {
    const uint64_t done = train_.run(period);
    period += done;
    if (done == 0 || !handlers_.redo_wanted(period - 1)) break;
    follow_up(redo_, period);
    handlers_.go_on(period);
  }
  if (settle_ && period > meta.step) follow_up(settle_, period);
  source_.start(source_.meta(), end, {});
  return source_.meta();
}

void StepRunner::follow_up(std::optional<offload::Executor>& executor, uint64_t period) {
  handlers_.start_follow_up(period);
  executor.value().run(period);
}

}  // namespace sluice::engine
