// When lanes work and why compute stands still: statistics and trace of the executor.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "base/trace.h"
#include "offload/executor.h"
#include "offload/plan.h"

namespace sluice::offload {

double executor_now();  // seconds, monotonic

// Members are called by the loop thread, except take().
class ExecutorClock {
 public:
  ExecutorClock(const Plan& plan, base::Trace* trace);

  void start(double now);
  uint32_t issued(Lane lane, double now);  // returns the row of the trace to give to done()

  struct Done {
    uint32_t op;
    uint32_t row;
    double ready;  // issued, and everything on other streams done
    double end;
    Lane cause;    // of the operation that made it ready
    uint64_t bytes;  // that were moved
  };
  void done(const Done& done);
  ExecutorStats take();

 private:
  struct LaneState {
    uint32_t in_flight = 0;
    double busy_since = 0;         // disk lanes: since when in_flight > 0
    double last_done = 0;          // other lanes: end of the last operation
    std::vector<bool> rows_taken;  // disk lanes: operations overlap, each needs a row of its own
  };
  double account(const Done& done, const Op& op);  // returns when the operation began to work
  struct Interval {
    double begin, end;
  };
  // Adds what a pause of compute, or a time of communication at work, has in common with those of the other kind.
  void add_exposed(const Interval& fresh, std::deque<Interval>& own, std::deque<Interval>& other);

  const Plan& plan_;
  base::Trace* const trace_;
  double trace_offset_ = 0;  // trace time - executor_now()
  std::array<LaneState, kLanes> lanes_;
  std::deque<Interval> pauses_, communication_;  // that one of the other kind may still meet
  std::mutex mutex_;  // guards stats_
  ExecutorStats stats_;
};

}  // namespace sluice::offload
