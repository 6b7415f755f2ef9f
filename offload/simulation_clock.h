// When lanes work and why compute stands still, in simulated time.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "offload/plan.h"
#include "offload/simulator.h"

namespace sluice::offload {

// What happened to the operations of a run so far. Operations of old periods are forgotten.
class SimulationClock {
 public:
  struct OpId {
    uint32_t op = 0;
    uint64_t period = 0;
    bool none = true;  // the start of the run
  };
  SimulationClock(const Plan& plan, bool keep_spans);

  // `by`: the operation whose end made this possible.
  void issued(uint32_t op, uint64_t period, double now, const OpId& by);
  // Device lanes: the stream has come to it and everything it waits for is done.
  void begun(uint32_t op, uint64_t period, double now, const OpId& by);
  void done(uint32_t op, uint64_t period, double now);
  const OpId& cause(uint32_t op, uint64_t period) const { return times(op, period).by; }

  struct Totals {  // since the start
    double at = 0;
    std::array<double, kLanes> busy{}, stall_by_lane{}, stall_by_cause{};
    double compute_stall = 0;
    double exposed = 0;  // communication at work while compute was not
  };
  Totals totals(double now) const;
  std::vector<OpSpan> take_spans() { return std::move(spans_); }

 private:
  static constexpr uint64_t kPeriods = 8;  // that are remembered
  struct Times {
    double issued, begin;
    OpId by;
    uint32_t row;
    uint32_t span;
  };
  struct LaneState {
    uint32_t at_work = 0;
    double since = 0, busy = 0;
    std::vector<bool> rows_taken;
  };
  Times& times(uint32_t op, uint64_t period) { return times_[period % kPeriods][op]; }
  const Times& times(uint32_t op, uint64_t period) const { return times_[period % kPeriods][op]; }
  void start_work(Lane lane, double now);
  void count_exposed(double now);  // up to now; before the compute or the comm lane starts or ends work
  void add_stall(uint64_t period, double from, double to, OpId by);
  uint32_t take_row(LaneState& lane);

  const Plan& plan_;
  const bool keep_spans_;
  std::array<std::vector<Times>, kPeriods> times_;
  std::array<LaneState, kLanes> lanes_;
  double compute_end_ = 0;  // of the last operation of the compute lane
  double counted_ = 0;      // exposed communication is counted up to here
  Totals totals_;
  std::vector<OpSpan> spans_;
};

}  // namespace sluice::offload
