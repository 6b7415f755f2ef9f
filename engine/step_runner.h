// Training steps between two pauses: periods of the train plan, redos after wrong guesses, and the settling of deferred updates.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "engine/guess_policy.h"
#include "engine/step_handlers.h"
#include "engine/train_source.h"
#include "offload/executor.h"
#include "offload/plan_builder.h"

namespace sluice::engine {

// Static plans over the same buffers, all checked. Settle and redo have no operations when the placement needs none.
struct StepPlans {
  offload::Plan train, settle, redo;
  StepPlans(const offload::Layout& layout, const offload::PlanOptions& options);
  bool guesses() const { return !redo.ops.empty(); }
};

// The plans of a run, and what they change to while guesses fail too often.
struct TrainPlans {
  StepPlans chosen;
  std::optional<StepPlans> deferred;
  // adaptive: without effect where the placement does not guess.
  TrainPlans(const offload::Layout& layout, const offload::PlanOptions& options, bool adaptive);
  std::vector<const offload::Plan*> all() const;
};

// Plans, handlers, source and policy must outlive the object.
class StepRunner {
 public:
  // policy: of plans with a deferred part; else null.
  StepRunner(const TrainPlans& plans, StepHandlers& handlers, TrainSource& source, GuessPolicy* policy,
             const offload::Executor::Options& options);
  // Steps meta.step + 1 .. end, or up to a stop request; then nothing is pending. Returns the meta after the last step.
  offload::StepMeta run(const offload::StepMeta& meta, uint64_t end);

 private:
  struct Executors {
    Executors(const StepPlans& plans, StepHandlers& handlers, const offload::Executor::Options& options);
    offload::Executor train;
    std::optional<offload::Executor> settle, redo;
    bool guesses;
  };
  Executors& current() { return deferred_ && !policy_->guess() ? *deferred_ : chosen_; }
  uint64_t run_steps(Executors& executors, uint64_t first);
  void follow_up(offload::Executor& executor, uint64_t period);

  StepHandlers& handlers_;
  TrainSource& source_;
  GuessPolicy* const policy_;
  Executors chosen_;
  std::unique_ptr<Executors> deferred_;
};

}  // namespace sluice::engine
