// Predicts how long a step takes and why: runs periods of a plan in simulated time, under the executor's own
// rule.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/trace.h"
#include "offload/fluid_rates.h"
#include "offload/machine.h"
#include "offload/plan.h"

namespace sluice::offload {

struct SimulationOptions {
  // Simulation ends when two periods in a row differ by no more than this share, or after max_periods (at
  // least 4).
  double tolerance = 1e-3;
  uint32_t max_periods = 8;
  // Multiplies the work of an operation, for what-if and tests; called once per operation and period, when
  // its work begins.
  std::function<double()> jitter;
  bool spans = false;  // keep every operation of the run; needed for trace_spans()
};

// One operation as it ran; seconds since the start of the simulation.
struct OpSpan {
  uint32_t op;
  uint32_t row;  // disk lanes: operations overlap, each has a row of its own
  uint64_t period;
  double issued;      // handed over by the loop
  double begin, end;  // at work; disk lanes: begin = issued
};

struct Simulation {
  double step_seconds = 0;   // of one period, once it is steady
  double first_seconds = 0;  // of the first period, which starts with empty pools
  uint32_t periods = 0;      // simulated
  bool steady = false;       // false: max_periods were not enough; all figures are averages

  // Per period, over the steady ones. Busy: seconds with at least one operation at work, as ExecutorStats
  // counts it.
  std::array<double, kLanes> busy{};
  std::array<uint64_t, kLanes> bytes{};
  double compute_stall = 0;
  double exposed = 0;  // of communication: seconds at work while compute stood still
  // The stall by lane of the operation that was waited for, as ExecutorStats counts it; and by what was
  // really at work at each moment of it, followed back from operation to operation (a CopyIn that waits for a
  // read is the read's fault).
  std::array<double, kLanes> stall_by_lane{}, stall_by_cause{};

  std::vector<Bound> bounds;  // of each resource, the binding one first
  std::vector<OpSpan> spans;  // in order of issue
};

// FLOP of an operation of the compute lane. (Where seconds are known: seconds times Machine::compute.)
using FlopsOf = std::function<double(const Op&)>;

// Lanes issue in plan order with their width; state transfers yield to their weights lane; an operation waits
// for its dependencies and for the last users of its ring buffers, host work until they are done and device
// work after device work until they are issued; at most three periods are at work. Operations at work share
// the machine max-min. The work of an operation is Op::bytes, of the compute lane its FLOP; a flush and a
// publish take Machine::flush each, an agree no time.
//
// The plan has passed check_plan. Error(bug) when it cannot go on all the same. Error(config): the machine
// lacks a rate that the plan needs.
Simulation simulate(const Plan& plan, const Machine& machine, const FlopsOf& flops,
                    const SimulationOptions& options = {});

// What was at work during the last two steady periods, of whatever step, as a run would have traced it: same rows, same names. Times
// start with the first span.
void trace_spans(const Plan& plan, const Simulation& simulation, base::Trace& trace);

}  // namespace sluice::offload
