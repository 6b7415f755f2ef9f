// Machines and work for simulator tests.
#pragma once
#include "offload/machine.h"
#include "offload/plan.h"
#include "offload/simulator.h"

namespace sluice::offload {

// Round numbers, no latencies: bounds can be computed in the head.
inline Machine round_machine() {
  Machine m;
  m.name = "round";
  m.disk_read = 2e9;
  m.disk_write = 1e9;
  m.disk_mixed = 2.5e9;
  m.disk_latency = m.copy_latency = m.update_latency = m.flush = 0;
  m.h2d = m.d2h = 10e9;
  m.dram = 50e9;
  m.adam = 1e9;
  m.compute = 1e12;
  return m;
}

// Equal time for every micro-batch; a backward as long as three forwards.
inline FlopsOf flops_of_seconds(const Machine& machine, double forward) {
  return [=](const Op& op) { return (op.kind == OpKind::forward ? 1 : 3) * forward * machine.compute; };
}

}  // namespace sluice::offload
