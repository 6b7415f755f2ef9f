// Properties of simulations over random plans and machines.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.h"
#include "offload/simulator.h"
#include "tests/offload/random_plans.h"
#include "tests/offload/simulated_machines.h"

namespace sluice::offload {
namespace {

using rc::gen::arbitrary;
using rc::gen::element;
using rc::gen::inRange;

// The usual ones, with lanes and pools of every size.
PlanOptions random_sizes(uint32_t world) {
  PlanOptions o = random_options(world);
  o.lane_width = *inRange(1u, 6u);
  o.pools.weights = *element(0u, 3u, 8u);
  o.pools.state = *element(0u, 1u, 2u, 5u);
  o.pools.gradients = *element(0u, 4u);
  return o;
}

Machine random_machine() {
  const auto rate = [](double usual) { return usual * *element(.1, .5, 1., 3., 30.); };
  Machine m = round_machine();
  m.disk_read = rate(2e9);
  m.disk_write = rate(1e9);
  m.disk_mixed = std::max(m.disk_read, m.disk_write) * *element(.8, 1., 1.4);
  m.h2d = rate(10e9);
  m.d2h = rate(10e9);
  m.copy_both = std::max(m.h2d, m.d2h) * *element(0., 1., 1.4);
  m.net = rate(5e9);
  m.dram = rate(50e9);
  m.adam = rate(1e9);
  if (*arbitrary<bool>()) m.compute_cores = 1, m.update_cores = .5, m.h2d_cores = m.d2h_cores = .25;
  m.disk_latency = *element(0., 1e-4);
  m.copy_latency = m.update_latency = *element(0., 2e-5);
  m.flush = *element(0., 2e-3);
  m.enqueue = *element(0., 0., 5e-5);
  return m;
}

// Plans whose rings are too small are refused by the check; the others must run.
bool passes(const Plan& plan) {
  try {
    check_plan(plan);
    return true;
  } catch (const base::Error& e) {
    if (e.kind() != base::ErrorKind::config) throw;
    return false;
  }
}

struct Case {
  Layout layout{random_model(), Schema::bf16, kSmallTile, *element(1u, 1u, 2u, 4u)};
  Plan plan = build_train_plan(layout, random_sizes(layout.world()));
  Machine machine = random_machine();
  FlopsOf flops = flops_of_seconds(machine, *element(1e-5, 1e-4, 1e-3));
};

RC_GTEST_PROP(SimulatorProperty, WhatPassesTheCheckRuns, ()) {
  const Case c;
  RC_PRE(passes(c.plan));
  const Simulation s = simulate(c.plan, c.machine, c.flops);
  RC_ASSERT(s.step_seconds > 0);
  RC_ASSERT(s.periods >= 4u);
}

RC_GTEST_PROP(SimulatorProperty, NothingIsFasterThanAResourceAllows, ()) {
  const Case c;
  RC_PRE(passes(c.plan));
  // Many periods: that lanes may be up to three of them apart, while pools fill, hardly counts.
  const Simulation s = simulate(c.plan, c.machine, c.flops,
                                {.tolerance = -1, .max_periods = 60, .jitter = [] { return 1.0; }});
  for (const Bound& b : s.bounds) RC_ASSERT(s.step_seconds >= .94 * b.seconds);
  const Simulation usual = simulate(c.plan, c.machine, c.flops);
  for (const Bound& b : usual.bounds) RC_ASSERT(usual.step_seconds >= (1 - 1e-9) * b.seconds);
}

RC_GTEST_PROP(SimulatorProperty, LanesIssueInPlanOrder, ()) {
  const Case c;
  RC_PRE(passes(c.plan));
  const Simulation s = simulate(c.plan, c.machine, c.flops, {.spans = true});
  std::array<std::vector<OpSpan>, kLanes> lanes;
  for (const OpSpan& span : s.spans) lanes[static_cast<size_t>(c.plan.ops[span.op].lane)].push_back(span);
  for (size_t l = 0; l < kLanes; ++l) {
    const auto& order = c.plan.order[l];
    for (size_t i = 0; i < lanes[l].size(); ++i) {
      RC_ASSERT(lanes[l][i].op == order[i % order.size()]);
      RC_ASSERT(lanes[l][i].period == i / order.size());
      if (i > 0) RC_ASSERT(lanes[l][i].issued >= lanes[l][i - 1].issued);
    }
  }
}

RC_GTEST_PROP(SimulatorProperty, DependenciesAreDoneBeforeWorkBegins, ()) {
  const Case c;
  RC_PRE(passes(c.plan));
  const Simulation s = simulate(c.plan, c.machine, c.flops, {.spans = true});
  std::map<std::pair<uint64_t, uint32_t>, const OpSpan*> spans;
  for (const OpSpan& span : s.spans) spans[{span.period, span.op}] = &span;
  for (const OpSpan& span : s.spans) {
    if (span.period + 1 >= s.periods) continue;  // perhaps not done when the simulation ended
    for (const Dep& dep : c.plan.ops[span.op].deps)
      if (span.period >= dep.periods)
        RC_ASSERT(spans.at({span.period - dep.periods, dep.op})->end <= span.begin + 1e-12);
  }
}

// Max-min sharing has anomalies (a faster disk may take DRAM from Adam at the wrong moment), so a little is
// allowed.
RC_GTEST_PROP(SimulatorProperty, MoreBandwidthIsNotSlower, ()) {
  const Case c;
  RC_PRE(passes(c.plan));
  Machine faster = c.machine;
  const double factor = *element(1.2, 2., 10.);
  switch (*inRange(0, 5)) {
    case 0:
      faster.disk_read *= factor, faster.disk_write *= factor, faster.disk_mixed *= factor;
      break;
    case 1:
      faster.h2d *= factor;
      break;
    case 2:
      faster.d2h *= factor;
      break;
    case 3:
      faster.dram *= factor;
      break;
    default:
      faster.adam *= factor;
  }
  const double before = simulate(c.plan, c.machine, c.flops).step_seconds,
               after = simulate(c.plan, faster, c.flops).step_seconds;
  RC_ASSERT(after <= 1.5 * before);
}

RC_GTEST_PROP(SimulatorProperty, JitterStopsNothing, ()) {
  const Case c;
  RC_PRE(passes(c.plan));
  std::mt19937 random(7);
  std::uniform_real_distribution<double> part(.7, 1.3);
  SimulationOptions options{.tolerance = -1, .max_periods = 20};
  options.jitter = [] { return 1.0; };
  const double steady = simulate(c.plan, c.machine, c.flops, options).step_seconds;
  options.jitter = [&] { return part(random); };
  const double shaken = simulate(c.plan, c.machine, c.flops, options).step_seconds;
  RC_ASSERT(shaken < 2 * steady);
  RC_ASSERT(shaken > .65 * steady);
}

}  // namespace
}  // namespace sluice::offload
