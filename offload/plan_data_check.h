// That every operation finds the bytes it means: the right buffer, filled, of the right generation, not yet
// overwritten.
#pragma once
#include "offload/plan.h"
#include "offload/plan_order.h"

namespace sluice::offload {

// Every operation names the buffers that it works on: reuse waits for those that do. Error(bug) naming one
// that does not.
void check_uses(const Plan& plan);

// Error(bug) naming two operations that are not ordered as they must be.
void check_data(const Plan& plan, const PlanOrder& order);

}  // namespace sluice::offload
