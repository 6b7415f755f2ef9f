// Notices that a lane has become slower than planned, or than it was at the start of the run.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "offload/executor.h"
#include "offload/plan.h"

namespace sluice::offload {

// A lane's figure is its seconds at work for each byte moved; of compute, update and commit for each step. Medians of windows are compared.
struct LaneDrift {
  enum class Against { plan, start };
  Lane lane;
  Against against;
  double ratio;      // figure now / figure then
  double excess;     // share of the step's time that the lane is at work for longer than it was
  std::string cause; // what it usually is, for a message
};

// What a plan says of a step. 0: nothing is known.
struct PlannedLanes {
  double step_seconds = 0;
  std::array<double, kLanes> busy{};  // seconds at work
  std::array<uint64_t, kLanes> bytes{};
};

// Not thread-safe.
class LaneDriftWatch {
 public:
  static constexpr size_t kStart = 50;      // steps that say how the run began; the first step fills pools and does not count
  static constexpr size_t kWindow = 20;     // the latest steps
  static constexpr size_t kLeast = 10;      // steps before a lane is compared with the plan
  static constexpr size_t kCoolDown = 50;   // steps after a recovery in which the lane is not told again; doubled each time
  static constexpr double kSlower = 1.15, kRecovered = 1.05;
  static constexpr double kLasting = 10;     // seconds that a lane must be slower for: short steps vary with whatever else runs
  static constexpr double kMaterial = 0.05;  // of the step's time: a smaller excess is of no consequence

  explicit LaneDriftWatch(const PlannedLanes& planned = {}) : planned_(planned) {}
  // One step. Each drift is told once, and again only some time after the lane has recovered. Against the plan none is told while the
  // steps take no longer than planned.
  std::vector<LaneDrift> add(const ExecutorStats& step, double seconds);
  // The steps so far were those of an earlier start: the next one fills pools again, and what they were beside this start's plan has
  // not been told.
  void restart();

 private:
  struct Telling {
    bool told = false;
    double slower_since = -1;                       // on the clock; -1: it is not
    size_t quiet_until = 0, cool_down = kCoolDown;  // steps
  };
  struct History {
    std::vector<double> figures;  // of the start, then of the latest window
    std::vector<double> shares;   // of the steps' time, in the latest window
    double start = 0;             // median; 0: not known yet
    std::array<Telling, 2> telling{};  // by Against
  };
  void judge(Lane lane, LaneDrift::Against against, double then, double now, std::vector<LaneDrift>& drifts);

  const PlannedLanes planned_;
  std::array<History, kLanes> lanes_;
  std::vector<double> seconds_;  // of the latest steps
  double clock_ = 0;             // seconds of all steps
  size_t steps_ = 0;
  bool fills_pools_ = true;
};

}  // namespace sluice::offload
