#include "offload/executor_clock.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace sluice::offload {

namespace {
constexpr double kWait = 1e-4;  // seconds; less is the hand-over between threads
}

ExecutorStats& ExecutorStats::operator+=(const ExecutorStats& other) {
  for (size_t lane = 0; lane < kLanes; ++lane) {
    busy[lane] += other.busy[lane];
    bytes[lane] += other.bytes[lane];
    stall_by_lane[lane] += other.stall_by_lane[lane];
  }
  for (const auto& [kind, seconds] : other.busy_by_kind) busy_by_kind[kind] += seconds;
  compute_stall += other.compute_stall;
  exposed += other.exposed;
  compute_ops += other.compute_ops;
  compute_waits += other.compute_waits;
  return *this;
}

double executor_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

ExecutorClock::ExecutorClock(const Plan& plan, base::Trace* trace) : plan_(plan), trace_(trace) {}

void ExecutorClock::start(double now) {
  if (trace_ != nullptr) trace_offset_ = trace_->now() - executor_now();
  for (LaneState& lane : lanes_) lane = {.last_done = now};
  pauses_.clear();
  communication_.clear();
}

uint32_t ExecutorClock::issued(Lane lane, double now) {
  LaneState& state = lanes_[static_cast<size_t>(lane)];
  if (state.in_flight++ == 0) state.busy_since = now;
  if (!is_disk_lane(lane)) return 0;
  const auto free = std::find(state.rows_taken.begin(), state.rows_taken.end(), false);
  const auto row = static_cast<uint32_t>(free - state.rows_taken.begin());
  if (free == state.rows_taken.end()) state.rows_taken.push_back(true);
  state.rows_taken[row] = true;
  return row;
}

double ExecutorClock::account(const Done& done, const Op& op) {
  const Lane lane = op.lane;
  LaneState& state = lanes_[static_cast<size_t>(lane)];
  const auto l = static_cast<size_t>(lane);
  --state.in_flight;
  const std::lock_guard lock(mutex_);
  stats_.bytes[l] += done.bytes;
  if (is_disk_lane(lane)) {
    state.rows_taken[done.row] = false;
    if (state.in_flight == 0) stats_.busy[l] += std::max(0.0, done.end - state.busy_since);
    return done.ready;
  }
  // One at a time: it began when it was ready and the one before was done.
  const double begin = std::min(std::max(done.ready, state.last_done), done.end);
  // What stays on the device has no bytes on the link, and no time of it.
  if (!op.on_device || lane == Lane::update) stats_.busy[l] += done.end - begin;
  stats_.busy_by_kind[op.kind] += done.end - begin;
  if (lane == Lane::compute) {
    ++stats_.compute_ops;
    stats_.compute_waits += begin - state.last_done >= kWait ? 1 : 0;
  }
  if (const double stall = begin - state.last_done; lane == Lane::compute && stall > 0) {
    stats_.compute_stall += stall;
    stats_.stall_by_lane[static_cast<size_t>(done.cause)] += stall;
    if (!plan_.order[static_cast<size_t>(Lane::comm)].empty()) add_exposed({state.last_done, begin}, pauses_, communication_);
  }
  if (lane == Lane::comm) add_exposed({begin, done.end}, communication_, pauses_);
  state.last_done = std::max(state.last_done, done.end);
  return begin;
}

// Intervals of a kind come in the order of time and do not overlap, so one that ends before the last of the other kind is done with.
void ExecutorClock::add_exposed(const Interval& fresh, std::deque<Interval>& own, std::deque<Interval>& other) {
  for (const Interval& i : other) stats_.exposed += std::max(0.0, std::min(i.end, fresh.end) - std::max(i.begin, fresh.begin));
  own.push_back(fresh);
  while (!other.empty() && other.front().end <= fresh.end) other.pop_front();
}

void ExecutorClock::done(const Done& done) {
  const Op& op = plan_.ops[done.op];
  const double begin = account(done, op);
  if (trace_ == nullptr) return;
  std::string row = to_string(op.lane);
  if (is_disk_lane(op.lane)) row += fmt::format(" {}", done.row);
  trace_->add(row, plan_.name(done.op), begin + trace_offset_, done.end + trace_offset_, done.bytes);
}

ExecutorStats ExecutorClock::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(stats_, {});
}

}  // namespace sluice::offload
