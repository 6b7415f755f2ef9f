// Plans that finish a step between the periods of a train plan. Each runs for one period, as the one after a train period that is
// done, over the same buffers; all operations belong to the step of that period.
#pragma once
#include "offload/layout.h"
#include "offload/plan.h"
#include "offload/plan_builder.h"

namespace sluice::offload {

// Deferred updates, their writes, and the commit that waits for them: before an evaluation, a checkpoint or the end. `train` was built
// from the same layout and options. No operations when the placement defers nothing.
Plan build_settle_plan(const Layout& layout, const PlanOptions& options, const Plan& train);

// What a wrong guess has updated, once more: from the generation before, read again into its buffer or its home in RAM (the published slot
// is the spare of both) or taken from its shadow, with the true clip coefficient. With the commit when the train plan commits in the same period; else that comes with
// the deferred updates. For a rejected step the same plan brings the old bytes back into memory, since its updates and writes do
// nothing. No operations when the placement guesses nothing.
Plan build_redo_plan(const Layout& layout, const PlanOptions& options, const Plan& train);

}  // namespace sluice::offload
