#include "offload/simulation_clock.h"

#include <algorithm>

namespace sluice::offload {

SimulationClock::SimulationClock(const Plan& plan, bool keep_spans) : plan_(plan), keep_spans_(keep_spans) {
  for (auto& period : times_) period.resize(plan.ops.size());
}

uint32_t SimulationClock::take_row(LaneState& lane) {
  const auto free = std::find(lane.rows_taken.begin(), lane.rows_taken.end(), false);
  const auto row = static_cast<uint32_t>(free - lane.rows_taken.begin());
  if (free == lane.rows_taken.end()) lane.rows_taken.push_back(true);
  lane.rows_taken[row] = true;
  return row;
}

void SimulationClock::count_exposed(double now) {
  if (lanes_[static_cast<size_t>(Lane::comm)].at_work > 0 && lanes_[static_cast<size_t>(Lane::compute)].at_work == 0)
    totals_.exposed += now - counted_;
  counted_ = now;
}

void SimulationClock::start_work(Lane lane, double now) {
  count_exposed(now);
  LaneState& state = lanes_[static_cast<size_t>(lane)];
  if (state.at_work++ == 0) state.since = now;
}

void SimulationClock::issued(uint32_t op, uint64_t period, double now, const OpId& by) {
  const Lane lane = plan_.ops[op].lane;
  Times& t = times(op, period);
  t = {now, now, by, 0, static_cast<uint32_t>(spans_.size())};
  if (is_disk_lane(lane)) t.row = take_row(lanes_[static_cast<size_t>(lane)]);
  if (!is_device_lane(lane)) start_work(lane, now);
  if (keep_spans_) spans_.push_back({op, t.row, period, now, now, now});
}

void SimulationClock::begun(uint32_t op, uint64_t period, double now, const OpId& by) {
  const Lane lane = plan_.ops[op].lane;
  Times& t = times(op, period);
  t.begin = now;
  t.by = by;
  start_work(lane, now);
  if (lane == Lane::compute && now > compute_end_) add_stall(period, compute_end_, now, by);
}

// Compute stood still from `from` to `to`, when the end of `by` let it go on. Whatever was at work on the way
// back from there is the cause.
void SimulationClock::add_stall(uint64_t period, double from, double to, OpId by) {
  totals_.compute_stall += to - from;
  const auto lane_of = [&](const OpId& id) {
    return static_cast<size_t>(id.none ? Lane::compute : plan_.ops[id.op].lane);
  };
  totals_.stall_by_lane[lane_of(by)] += to - from;
  while (to > from) {
    const bool known = !by.none && by.period + kPeriods / 2 > period && period + kPeriods / 2 > by.period;
    const double begin = known ? std::max(from, times(by.op, by.period).begin) : from;
    totals_.stall_by_cause[lane_of(by)] += std::max(0.0, to - begin);
    to = std::min(to, begin);
    if (!known) break;
    by = times(by.op, by.period).by;
  }
}

void SimulationClock::done(uint32_t op, uint64_t period, double now) {
  const Lane lane = plan_.ops[op].lane;
  LaneState& state = lanes_[static_cast<size_t>(lane)];
  const Times& t = times(op, period);
  count_exposed(now);
  if (is_disk_lane(lane)) state.rows_taken[t.row] = false;
  if (--state.at_work == 0) state.busy += now - state.since;
  if (lane == Lane::compute) compute_end_ = now;
  if (!keep_spans_) return;
  spans_[t.span].begin = t.begin;
  spans_[t.span].end = now;
}

SimulationClock::Totals SimulationClock::totals(double now) const {
  Totals totals = totals_;
  totals.at = now;
  for (size_t l = 0; l < kLanes; ++l)
    totals.busy[l] = lanes_[l].busy + (lanes_[l].at_work > 0 ? now - lanes_[l].since : 0);
  return totals;
}

}  // namespace sluice::offload
