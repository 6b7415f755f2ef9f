// Training steps between two pauses: periods of the train plan, redos after wrong guesses, and the settling of deferred updates.
#pragma once
#include <optional>

#include "engine/step_handlers.h"
#include "engine/train_source.h"
#include "offload/executor.h"
#include "offload/plan_builder.h"

namespace sluice::engine {

// Static plans over the same buffers, all checked. Settle and redo have no operations when the placement needs none.
struct TrainPlans {
  offload::Plan train, settle, redo;
  TrainPlans(const offload::Layout& layout, const offload::PlanOptions& options);
};

// Plans, handlers and source must outlive the object.
class StepRunner {
 public:
  StepRunner(const TrainPlans& plans, StepHandlers& handlers, TrainSource& source, const offload::Executor::Options& options);
  // Steps meta.step + 1 .. end, or up to a stop request; then nothing is pending. Returns the meta after the last step.
  offload::StepMeta run(const offload::StepMeta& meta, uint64_t end);

 private:
  void follow_up(std::optional<offload::Executor>& executor, uint64_t period);

  StepHandlers& handlers_;
  TrainSource& source_;
  offload::Executor train_;
  std::optional<offload::Executor> settle_, redo_;
};

}  // namespace sluice::engine
