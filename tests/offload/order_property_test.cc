// The executor and the simulator do the same: random training steps at their smallest pools, through both.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>

#include "executor_harness.h"
#include "offload/simulator.h"
#include "random_plans.h"
#include "simulated_machines.h"
#include "smallest_rings.h"

namespace sluice::offload {
namespace {

using rc::gen::arbitrary;
using rc::gen::element;
using rc::gen::inRange;

constexpr uint64_t kPeriods = 4;  // of the executor; a simulation ends while lanes are up to three periods apart

Plan random_training_plan() {
  const Layout layout(random_model(/*most_layers=*/3, /*most_tiles=*/2), Schema::bf16, kSmallTile, *element(1u, 1u, 2u));
  PlanOptions options = random_options(layout.world());
  options.lane_width = *inRange(1u, 5u);
  Plan plan = build_train_plan(layout, options);
  take_smallest_rings(plan);
  return plan;
}

std::array<std::vector<OpId>, kLanes> simulated_orders(const Plan& plan) {
  Machine machine = round_machine();
  machine.net = 5e9;
  machine.disk_latency = *element(0., 1e-4);
  const Simulation s = simulate(plan, machine, flops_of_seconds(machine, *element(1e-5, 1e-3)),
                                {.tolerance = -1, .max_periods = kPeriods + 3, .jitter = [] { return 1.0; }, .spans = true});
  std::array<std::vector<OpId>, kLanes> orders;
  for (const OpSpan& span : s.spans) orders[static_cast<size_t>(plan.ops[span.op].lane)].emplace_back(span.period, span.op);
  return orders;
}

RC_GTEST_PROP(OrderProperty, ExecutorAndSimulatorAgreeAtTheSmallestPools, ()) {
  const Plan plan = random_training_plan();
  check_plan(plan);
  FakeHandlers handlers(plan, {.periods = kPeriods, .seed = *arbitrary<uint32_t>(), .jitter_us = *element(0, 0, 40), .skip_disk = *inRange(0u, 3u)});
  FakeMachine machine(plan, handlers);
  RC_ASSERT(machine.executor.run(0) == kPeriods);
  for (const std::string& note : handlers.watch.notes()) RC_FAIL(note);
  const auto simulated = simulated_orders(plan);
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const std::vector<OpId> run = handlers.watch.order(static_cast<Lane>(lane));
    RC_ASSERT(run.size() == kPeriods * plan.order[lane].size());
    RC_ASSERT(simulated[lane].size() >= run.size());
    RC_ASSERT(std::equal(run.begin(), run.end(), simulated[lane].begin()));
  }
}

}  // namespace
}  // namespace sluice::offload
