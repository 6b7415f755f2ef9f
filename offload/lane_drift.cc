#include "offload/lane_drift.h"

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

}  // namespace

LaneDriftWatch::LaneDriftWatch(const std::array<double, kLanes>& planned) : planned_(planned) {}

std::vector<LaneDrift> LaneDriftWatch::add(const ExecutorStats& step) {
  std::vector<LaneDrift> drifts;
  if (steps_++ == 0) return drifts;
  for (size_t l = 0; l < kLanes; ++l) {
    const auto lane = static_cast<Lane>(l);
    const double unit = by_step(lane) ? 1.0 : static_cast<double>(step.bytes[l]);
    if (unit <= 0 || step.busy[l] <= 0) continue;
    History& history = lanes_[l];
    history.figures.push_back(step.busy[l] / unit);
    const size_t limit = history.start > 0 ? kWindow : kStart;
    if (history.figures.size() > limit) history.figures.erase(history.figures.begin());
    if (history.figures.size() < limit) continue;
    const double now = base::median(history.figures);
    if (history.start <= 0) {
      history.start = now;
      history.figures.clear();
    } else {
      judge(lane, LaneDrift::Against::start, history.start, now, drifts);
    }
    if (planned_[l] > 0) judge(lane, LaneDrift::Against::plan, planned_[l] / unit, now, drifts);
  }
  return drifts;
}

void LaneDriftWatch::judge(Lane lane, LaneDrift::Against against, double then, double now, std::vector<LaneDrift>& drifts) {
  bool& told = lanes_[static_cast<size_t>(lane)].told[static_cast<size_t>(against)];
  const double ratio = now / then;
  if (told) {
    told = ratio > kRecovered;
  } else if (ratio > kSlower) {
    told = true;
    drifts.push_back({lane, against, ratio, usual_cause(lane)});
  }
}

}  // namespace sluice::offload
