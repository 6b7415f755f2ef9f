#include "offload/lane_drift.h"

#include <algorithm>
#include <utility>

#include "base/statistics.h"

namespace sluice::offload {
namespace {

// Work that every step does alike, though its bytes do not say how much.
bool by_step(Lane lane) { return lane == Lane::compute || lane == Lane::update || lane == Lane::commit; }

const char* usual_cause(Lane lane) {
  switch (lane) {
    case Lane::disk_weights:
    case Lane::disk_state: return "another process reads from the drive, or the drive is hot";
    case Lane::disk_write_weights:
    case Lane::disk_write_state: return "the drive's fast write cache is full, the drive is hot, or another process writes to it";
    case Lane::h2d:
    case Lane::d2h: return "another process uses the link or the memory bandwidth";
    case Lane::comm: return "another rank is slower, or the network is shared";
    case Lane::compute: return "the device is throttled by heat or power, or another process uses it";
    case Lane::update: return "another process uses the cores or the memory bandwidth";
    case Lane::commit: return "flushes take longer: the drive is busy with other writes";
  }
  return "";
}

// Work of which a step has `bytes`.
double unit_of(Lane lane, uint64_t bytes) { return by_step(lane) ? 1.0 : static_cast<double>(bytes); }

void push(std::vector<double>& window, double value, size_t limit) {
  window.push_back(value);
  while (window.size() > limit) window.erase(window.begin());
}

double latest(const std::vector<double>& figures) {
  const size_t count = std::min(figures.size(), LaneDriftWatch::kWindow);
  return base::median({figures.end() - static_cast<std::ptrdiff_t>(count), figures.end()});
}

}  // namespace

std::vector<LaneDrift> LaneDriftWatch::add(const ExecutorStats& step, double seconds) {
  std::vector<LaneDrift> drifts;
  if (std::exchange(fills_pools_, false) || seconds <= 0) return drifts;
  ++steps_;
  clock_ += seconds;
  push(seconds_, seconds, kWindow);
  const bool as_planned = planned_.step_seconds > 0 && base::median(seconds_) <= planned_.step_seconds;
  for (size_t l = 0; l < kLanes; ++l) {
    const auto lane = static_cast<Lane>(l);
    History& history = lanes_[l];
    push(history.shares, step.busy[l] / seconds, kWindow);
    const double unit = unit_of(lane, step.bytes[l]), planned_unit = unit_of(lane, planned_.bytes[l]);
    if (unit <= 0 || step.busy[l] <= 0) continue;
    push(history.figures, step.busy[l] / unit, history.start > 0 ? kWindow : kStart);
    const double now = latest(history.figures);
    if (history.start <= 0 && history.figures.size() == kStart) history.start = base::median(history.figures);
    if (history.start > 0) judge(lane, LaneDrift::Against::start, history.start, now, drifts);
    if (planned_.busy[l] > 0 && planned_unit > 0 && history.figures.size() >= kLeast && !as_planned)
      judge(lane, LaneDrift::Against::plan, planned_.busy[l] / planned_unit, now, drifts);
  }
  return drifts;
}

void LaneDriftWatch::restart() {
  fills_pools_ = true;
  for (History& lane : lanes_) lane.telling[static_cast<size_t>(LaneDrift::Against::plan)] = {};
}

void LaneDriftWatch::judge(Lane lane, LaneDrift::Against against, double then, double now, std::vector<LaneDrift>& drifts) {
  History& history = lanes_[static_cast<size_t>(lane)];
  Telling& telling = history.telling[static_cast<size_t>(against)];
  const double ratio = now / then;
  if (telling.told) {
    if (ratio > kRecovered) return;
    telling.told = false;
    telling.quiet_until = steps_ + telling.cool_down;
    telling.cool_down *= 2;
    return;
  }
  const double excess = base::median(history.shares) * (1 - 1 / ratio);
  if (ratio <= kSlower || excess < kMaterial || steps_ < telling.quiet_until) {
    telling.slower_since = -1;
    return;
  }
  if (telling.slower_since < 0) telling.slower_since = clock_;
  if (clock_ - telling.slower_since < kLasting) return;
  telling.told = true;
  telling.slower_since = -1;
  drifts.push_back({lane, against, ratio, excess, usual_cause(lane)});
}

}  // namespace sluice::offload
