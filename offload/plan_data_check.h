// That every operation finds the bytes it means: the right buffer, filled, of the right generation, not yet overwritten.
#pragma once
#include "offload/plan.h"
#include "offload/plan_order.h"

namespace sluice::offload {

// Error(bug) naming two operations that are not ordered as they must be.
void check_data(const Plan& plan, const PlanOrder& order);

}  // namespace sluice::offload
