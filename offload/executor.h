// Runs periods of a plan. One loop issues all lanes in plan order; operations complete in any order.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/trace.h"
#include "gpu/device.h"
#include "io/disk_queue.h"
#include "offload/plan.h"

namespace sluice::offload {

struct OpRun {
  const Plan* plan;
  uint32_t index;   // of the operation in the plan
  uint64_t period;
  const Op& op() const { return plan->ops[index]; }
  uint32_t buffer(size_t use = 0) const { return plan->buffer(op().uses[use], period); }
};

// What the operations do; implemented by the engine. An exception of any member is the operation's failure.
class OpHandlers {
 public:
  virtual ~OpHandlers() = default;
  // Loop thread, once per period, just before the first operation of the period is issued (this may be long before the last
  // operation of the period before is done). False: no further period; the executor drains and returns.
  virtual bool begin_period(uint64_t period) = 0;
  // Device lanes, loop thread: put the work on the stream and return. The executor has made the stream wait for what it must
  // wait for.
  virtual void enqueue(const OpRun& run, gpu::Stream& stream) = 0;
  // Disk lanes, loop thread: what to transfer; no value: nothing to do (done at once).
  struct DiskRequest {
    io::DiskQueue* queue;
    io::IoRequest request;
  };
  virtual std::optional<DiskRequest> request(const OpRun& run) = 0;
  // Update and commit lanes: do the work, on the lane's own thread.
  virtual void run(const OpRun& run) = 0;
  // After the operation is done and before anything on the host that depends on it starts. Device work that depends on other
  // device work may be on its stream already. Not called for an operation that failed. Today on the loop thread, so it must be
  // quick; do not rely on the thread.
  virtual void done(const OpRun& run) { (void)run; }
};

struct ExecutorStats {  // seconds and bytes of the operations done since the last take
  std::array<double, kLanes> busy{};   // at least one operation at work (device: not merely waiting for another stream)
  std::array<uint64_t, kLanes> bytes{};
  double compute_stall = 0;            // compute lane idle before an operation of it
  std::array<double, kLanes> stall_by_lane{};  // that time by the lane of the operation it waited for
  double exposed = 0;                          // communication at work while the compute lane was idle
  std::map<OpKind, double> busy_by_kind;       // of the lanes that do one operation at a time: all but the disk's
  uint64_t compute_ops = 0, compute_waits = 0;  // operations of the compute lane; those it stood idle before (0.1 ms or more)
  ExecutorStats& operator+=(const ExecutorStats& other);
};

// The loop is the thread that calls run(); besides, one waiter per device stream, one update and one commit thread. At most three
// periods are at work at a time.
//
// Operations of a lane are issued in plan order, at most `width` in flight; the lanes disk_state and disk_write_state yield to
// their weights lane within theirs. Host work waits until what it depends on is done, device work that depends on device work
// only until that is issued, and its stream waits for the rest. Buffers of rings are reused under the same rule.
//
// First error wins: no further operation is issued (no publish after it), everything in flight is drained, and run() rethrows
// once as a base::Error of the same kind, with the operation's name in the message. After an error the executor cannot be used
// again.
class Executor {
 public:
  struct Options {
    gpu::Stream* compute = nullptr;
    gpu::Stream* h2d = nullptr;
    gpu::Stream* d2h = nullptr;
    gpu::Stream* comm = nullptr;
    base::Trace* trace = nullptr;    // optional
  };
  // Plan, handlers and streams must outlive the executor. The plan has passed check_plan; one that cannot go on all the same ends
  // in Error(bug). A lane without operations needs no stream.
  Executor(const Plan& plan, OpHandlers& handlers, const Options& options);
  ~Executor();
  // Runs periods first, first+1, ... until begin_period says no; returns the number of periods run. Blocking. The dependencies
  // of the first period on earlier ones count as done; on return every operation is done.
  uint64_t run(uint64_t first_period);
  // From run() of a handler (the gate): the period is the last of this run. What has been issued of later ones is completed and forgotten, and
  // the run after it may begin with one of them. An operation of a later period that has an effect must depend on the caller's.
  void end_after(uint64_t period);
  // From any thread: issue nothing more (used to abandon a step); run() drains and throws Error(interrupted). For good.
  void abandon();
  ExecutorStats take_stats();  // from any thread

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::offload
