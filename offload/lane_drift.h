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
  std::string cause; // what it usually is, for a message
};

// Not thread-safe.
class LaneDriftWatch {
 public:
  static constexpr size_t kStart = 50;   // steps that say how the run began; the first step fills pools and does not count
  static constexpr size_t kWindow = 20;  // the latest steps
  static constexpr double kSlower = 1.15, kRecovered = 1.05;

  // planned: seconds at work of each lane in a step, 0 where nothing is known.
  explicit LaneDriftWatch(const std::array<double, kLanes>& planned = {});
  // Statistics of one step. Each drift is told once, and again only after the lane has recovered.
  std::vector<LaneDrift> add(const ExecutorStats& step);

 private:
  struct History {
    std::vector<double> figures;  // of the start, then of the latest window
    double start = 0;             // median; 0: not known yet
    std::array<bool, 2> told{};   // by Against
  };
  void judge(Lane lane, LaneDrift::Against against, double then, double now, std::vector<LaneDrift>& drifts);

  const std::array<double, kLanes> planned_;
  std::array<History, kLanes> lanes_;
  uint64_t steps_ = 0;
};

}  // namespace sluice::offload
