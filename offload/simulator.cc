#include "offload/simulator.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <queue>

#include "base/error.h"
#include "offload/executor_dependencies.h"
#include "offload/simulation_clock.h"

namespace sluice::offload {
namespace {

using base::ErrorKind;
using base::fail;
using OpId = SimulationClock::OpId;

constexpr uint64_t kLive = Dependencies::kLivePeriods;
constexpr uint64_t kSlots = 2 * kLive - 1;  // live periods, and those that edges from them reach
constexpr double kForever = std::numeric_limits<double>::infinity();

// State transfers share the width of their lane with the weights', which go first.
constexpr bool yields_to_lane_before(size_t lane) {
  return lane == static_cast<size_t>(Lane::disk_state) || lane == static_cast<size_t>(Lane::disk_write_state);
}

double latency(const Machine& machine, const Op& op) {
  switch (op.lane) {
    case Lane::h2d:
    case Lane::d2h:
      return machine.copy_latency;
    case Lane::comm:
      return op.collectives * machine.net_latency;
    case Lane::compute:
      return 0;
    case Lane::update:
      return machine.update_latency;
    case Lane::commit:
      return op.kind == OpKind::agree ? 0 : machine.flush;  // data, then the record
    default:
      return machine.disk_latency;
  }
}

// What the optimizer does in a device's own memory goes at that memory's rate. An emulated device has the host's.
std::vector<double> work_of(const Plan& plan, const Machine& m, const FlopsOf& flops) {
  const double on_device = m.device_memory_rate > 0 ? kAdamBytes * m.adam / m.device_memory_rate : 1;
  std::vector<double> work;
  work.reserve(plan.ops.size());
  for (const Op& op : plan.ops) {
    const bool faster = op.on_device && op.lane == Lane::update;
    work.push_back(op.lane == Lane::compute  ? flops(op)
                   : op.lane == Lane::commit ? latency(m, op)
                                             : static_cast<double>(op.bytes) * (faster ? on_device : 1));
  }
  return work;
}

LaneAmounts by_lane(const Plan& plan, const std::vector<double>& work) {
  LaneAmounts sums{};
  for (uint32_t i = 0; i < plan.ops.size(); ++i) sums[static_cast<size_t>(plan.ops[i].lane)] += work[i];
  return sums;
}

void check_rates(const Plan& plan, const Machine& m) {
  const std::pair<double, const char*> rates[kLanes] = {{m.disk_read, "disk.read"},
                                                        {m.disk_read, "disk.read"},
                                                        {m.disk_write, "disk.write"},
                                                        {m.disk_write, "disk.write"},
                                                        {m.h2d, "copy.h2d"},
                                                        {m.d2h, "copy.d2h"},
                                                        {m.net, "net.rate"},
                                                        {m.compute, "compute.rate"},
                                                        {m.adam, "adam.rate"},
                                                        {1, ""}};
  for (size_t l = 0; l < kLanes; ++l)
    if (!plan.order[l].empty() && !(rates[l].first > 0))
      fail(ErrorKind::config, "the machine profile \"{}\" has no {}, which the plan needs: measure it (sluice bench), or write it into the profile",
           m.name, rates[l].second);
}

class Simulator {
 public:
  Simulator(const Plan& plan, const Machine& machine, const FlopsOf& flops, const SimulationOptions& options)
      : plan_(plan),
        machine_(machine),
        options_(options),
        dependencies_(plan),
        rates_(machine),
        clock_(plan, options.spans),
        work_(work_of(plan, machine, flops)),
        bounds_(bounds(machine, by_lane(plan, work_))) {
    SLUICE_CHECK(!plan.order[static_cast<size_t>(Lane::compute)].empty(), "a plan that computes nothing");
    last_compute_ = plan.order[static_cast<size_t>(Lane::compute)].back();
    for (uint64_t age = 0; age < kSlots; ++age) slots_[age].reset(dependencies_.waits(age));
  }

  Simulation run() {
    issue_all();
    while (!finished()) step();
    return result();
  }

 private:
  struct Period {
    std::vector<uint32_t> waits;  // edges not yet satisfied
    std::vector<char> done;
    size_t left = 0;  // operations not yet done
    void reset(const std::vector<uint32_t>& initial) {
      waits = initial;
      left = initial.size();
      done.assign(left, 0);
    }
  };
  struct AtWork {  // on a fluid resource
    double until;  // amount of work that each operation of the lane has been given by then
    uint32_t op;
    uint64_t period;
  };
  struct LaneState {
    uint64_t period = 0;  // of the next operation to issue
    size_t next = 0;      // in the lane's order
    uint32_t in_flight = 0;
    double given = 0;  // work that an operation that was always there would have got
    std::vector<AtWork> at_work;
    std::deque<OpId> stream;  // device lanes: issued, not begun
  };
  struct Timer {
    double at;
    uint64_t number;  // equal times keep their order
    OpId id;
    bool operator>(const Timer& other) const {
      return std::pair(at, number) > std::pair(other.at, other.number);
    }
  };

  Period& slot(uint64_t period) { return slots_[period % kSlots]; }
  bool steady() const;
  double bound() const;
  bool finished() const;
  void step();
  void advance(double seconds, const LaneAmounts& rates);
  bool can_issue(size_t lane);
  void issue_all();
  void issue(size_t lane);
  void arrive(const OpId& id);
  void begin_streams(const OpId& cause);
  bool may_begin(const OpId& id);
  void work_on(const OpId& id);
  void complete(const OpId& id);
  Simulation result();

  const Plan& plan_;
  const Machine& machine_;
  const SimulationOptions& options_;
  const Dependencies dependencies_;
  FluidRates rates_;
  SimulationClock clock_;
  const std::vector<double> work_;
  const std::vector<Bound> bounds_;
  uint32_t last_compute_;

  double now_ = 0;
  double loop_free_ = 0;  // the issuing thread is busy until then
  uint64_t oldest_ = 0;   // period with operations not yet done
  std::array<Period, kSlots> slots_;
  std::array<LaneState, kLanes> lanes_;
  LaneCounts counts_{};  // at work, by lane
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  uint64_t timer_number_ = 0;
  OpId cause_;                                 // whose end is being dealt with
  std::vector<SimulationClock::Totals> ends_;  // of the compute lane's last operation, by period
};

// The time to the next event: an operation gets the last of its work, or a timer runs out.
void Simulator::step() {
  const LaneAmounts& rates = rates_.of(counts_);
  double wait = timers_.empty() ? kForever : std::max(0.0, timers_.top().at - now_);
  size_t lane = kLanes, index = 0;
  for (size_t l = 0; l < kLanes; ++l) {
    const LaneState& state = lanes_[l];
    for (size_t i = 0; i < state.at_work.size(); ++i) {
      const double needs = std::max(0.0, state.at_work[i].until - state.given) / rates[l];
      if (needs < wait) wait = needs, lane = l, index = i;
    }
  }
  if (wait == kForever)
    fail(ErrorKind::bug, "the simulated plan cannot go on after {:.3f} s in period {}", now_, oldest_);
  advance(wait, rates);
  if (lane == kLanes) {
    const Timer due = timers_.top();
    timers_.pop();
    now_ = due.at;
    if (!due.id.none) arrive(due.id);
    return issue_all();  // the issuing thread may be free again
  }
  auto& at_work = lanes_[lane].at_work;
  const OpId id{at_work[index].op, at_work[index].period, false};
  at_work[index] = at_work.back();
  at_work.pop_back();
  --counts_[lane];
  complete(id);
}

void Simulator::advance(double seconds, const LaneAmounts& rates) {
  now_ += seconds;
  for (size_t l = 0; l < kLanes; ++l)
    if (counts_[l] > 0) lanes_[l].given += seconds * rates[l];
}

bool Simulator::can_issue(size_t lane) {
  const auto& order = plan_.order[lane];
  const LaneState& at = lanes_[lane];
  if (order.empty() || now_ < loop_free_ || at.period >= oldest_ + kLive) return false;
  const uint32_t in_lane = at.in_flight + (yields_to_lane_before(lane) ? lanes_[lane - 1].in_flight : 0);
  return in_lane < plan_.widths[lane] && slot(at.period).waits[order[at.next]] == 0;
}

void Simulator::issue_all() {
  for (bool any = true; any;) {
    any = false;
    for (size_t lane = 0; lane < kLanes; ++lane)
      for (; can_issue(lane); any = true) issue(lane);
  }
}

void Simulator::issue(size_t lane) {
  LaneState& at = lanes_[lane];
  const OpId id{plan_.order[lane][at.next], at.period, false};
  if (++at.next == plan_.order[lane].size()) at.next = 0, ++at.period;
  ++at.in_flight;
  clock_.issued(id.op, id.period, now_, cause_);
  double arrives = now_ + latency(machine_, plan_.ops[id.op]);
  if (is_device_lane(plan_.ops[id.op].lane)) {
    arrives += machine_.enqueue;
    loop_free_ = now_ + machine_.enqueue;
    for (const auto& follower : dependencies_.after_issue(id.op))
      --slot(id.period + follower.periods).waits[follower.op];
    if (loop_free_ > now_ && arrives > loop_free_) timers_.push({loop_free_, timer_number_++, {}});
  }
  if (arrives > now_) {
    timers_.push({arrives, timer_number_++, id});
  } else {
    arrive(id);
  }
}

// At the disk, at the thread that does it, or at its stream.
void Simulator::arrive(const OpId& id) {
  const Op& op = plan_.ops[id.op];
  if (op.lane == Lane::commit) return complete(id);
  if (!is_device_lane(op.lane)) return work_on(id);
  lanes_[static_cast<size_t>(op.lane)].stream.push_back(id);
  begin_streams(clock_.cause(id.op, id.period));
}

// A stream does one thing at a time, in order, and waits for what it must.
void Simulator::begin_streams(const OpId& cause) {
  for (const Lane lane : {Lane::h2d, Lane::d2h, Lane::comm, Lane::compute}) {
    LaneState& state = lanes_[static_cast<size_t>(lane)];
    if (state.stream.empty() || !state.at_work.empty() || !may_begin(state.stream.front())) continue;
    const OpId id = state.stream.front();
    state.stream.pop_front();
    clock_.begun(id.op, id.period, now_, cause);
    work_on(id);
  }
}

bool Simulator::may_begin(const OpId& id) {
  for (const auto& producer : dependencies_.producers(id.op)) {
    if (id.period - oldest_ < producer.periods) continue;  // of a period that is done, or from before the run
    if (!slot(id.period - producer.periods).done[producer.op]) return false;
  }
  return true;
}

void Simulator::work_on(const OpId& id) {
  const auto lane = static_cast<size_t>(plan_.ops[id.op].lane);
  const double work = work_[id.op] * (options_.jitter ? options_.jitter() : 1);
  lanes_[lane].at_work.push_back({lanes_[lane].given + work, id.op, id.period});
  ++counts_[lane];
}

void Simulator::complete(const OpId& id) {
  cause_ = id;
  Period& period = slot(id.period);
  --lanes_[static_cast<size_t>(plan_.ops[id.op].lane)].in_flight;
  clock_.done(id.op, id.period, now_);
  period.done[id.op] = 1;
  for (const auto& follower : dependencies_.after_done(id.op))
    --slot(id.period + follower.periods).waits[follower.op];
  --period.left;
  for (; slot(oldest_).left == 0; ++oldest_) slot(oldest_).reset(dependencies_.waits(oldest_ + kSlots));
  if (id.op == last_compute_) ends_.push_back(clock_.totals(now_));
  begin_streams(id);
  issue_all();
}

// Two periods in a row alike, and none faster than the busiest resource allows: that one is only filling its
// pools.
bool Simulator::steady() const {
  const size_t n = ends_.size();
  if (n < 4) return false;
  const double last = ends_[n - 1].at - ends_[n - 2].at, before = ends_[n - 2].at - ends_[n - 3].at;
  return std::abs(last - before) <= options_.tolerance * last && last >= (1 - options_.tolerance) * bound();
}

double Simulator::bound() const {
  return bounds_.empty() || options_.jitter ? 0 : bounds_[0].seconds;
}

bool Simulator::finished() const {
  return steady() || ends_.size() >= std::max(4u, options_.max_periods);
}

Simulation Simulator::result() {
  Simulation s;
  const size_t n = ends_.size();
  s.steady = steady();
  s.periods = static_cast<uint32_t>(n);
  s.bounds = bounds_;
  // A plan whose periods alternate is averaged over as many of them as there are.
  const auto& from = ends_[s.steady ? n - 3 : 1];
  const auto& to = ends_[n - 1];
  const double count = s.steady ? 2 : static_cast<double>(n - 2);
  const auto per_period = [&](double SimulationClock::Totals::*total) {
    return (to.*total - from.*total) / count;
  };
  const auto by_lane = [&](std::array<double, kLanes> SimulationClock::Totals::*total,
                           std::array<double, kLanes>& out) {
    for (size_t l = 0; l < kLanes; ++l) out[l] = ((to.*total)[l] - (from.*total)[l]) / count;
  };
  s.first_seconds = ends_[0].at;
  s.step_seconds = std::max(per_period(&SimulationClock::Totals::at), bound());
  s.compute_stall = per_period(&SimulationClock::Totals::compute_stall);
  s.exposed = per_period(&SimulationClock::Totals::exposed);
  by_lane(&SimulationClock::Totals::busy, s.busy);
  by_lane(&SimulationClock::Totals::stall_by_lane, s.stall_by_lane);
  by_lane(&SimulationClock::Totals::stall_by_cause, s.stall_by_cause);
  for (const Op& op : plan_.ops) s.bytes[static_cast<size_t>(op.lane)] += op.bytes;
  s.spans = clock_.take_spans();
  return s;
}

}  // namespace

Simulation simulate(const Plan& plan, const Machine& machine, const FlopsOf& flops,
                    const SimulationOptions& options) {
  check_rates(plan, machine);
  return Simulator(plan, machine, flops, options).run();
}

void trace_spans(const Plan& plan, const Simulation& simulation, base::Trace& trace) {
  const uint32_t last = plan.order[static_cast<size_t>(Lane::compute)].back();
  double from = 0, to = 0;  // ends of computation: two periods lie between them
  for (const OpSpan& span : simulation.spans) {
    if (span.op != last) continue;
    if (span.period + 3 == simulation.periods) from = span.end;
    to = std::max(to, span.end);
  }
  double start = kForever;
  const auto shown = [&](const OpSpan& span) { return span.end > span.issued && span.end > from && span.begin < to; };
  for (const OpSpan& span : simulation.spans)
    if (shown(span)) start = std::min(start, span.begin);
  for (const OpSpan& span : simulation.spans) {
    if (!shown(span)) continue;
    const Op& op = plan.ops[span.op];
    std::string row = to_string(op.lane);
    if (is_disk_lane(op.lane)) row += fmt::format(" {}", span.row);
    trace.add(row, plan.name(span.op), span.begin - start, span.end - start, op.bytes);
  }
}

}  // namespace sluice::offload
