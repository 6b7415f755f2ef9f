// Owns an NCCL communicator, and a thread that watches it: device collectives carry no status, and wait for a dead rank for ever.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/comm/control.h"
#include "engine/comm/nccl_error.h"
#include "engine/comm/patience.h"
#include "gpu/device.h"

namespace sluice::comm {

// The thread aborts the communicator when a rank has failed, NCCL reports an error, or the device has waited in a collective for longer
// than the deadline. After an abort the kernels return and the stream runs on over whatever its memory holds: so whoever uses results of a
// collective on the host asks the control channel first, and the stream fails at its next collective.
//
// Members are called by the thread that enqueues. Lives in a shared_ptr: the thread holds one too, in case an abort hangs.
class NcclWatch : public std::enable_shared_from_this<NcclWatch> {
 public:
  // comm: being initialised, taken over.
  NcclWatch(Control& control, ncclComm_t comm) : control_(&control), comm_(comm), deadline_(control.deadline()) {}
  // Begins the thread, for the caller's current device.
  void start();

  // Waits until the communicator is not "in progress" any more. Error(peer).
  void settle(const char* call);
  // Runs NCCL calls as one group; waits until they are enqueued. Error(peer).
  void group(const char* call, const std::function<ncclResult_t(ncclComm_t)>& calls);
  // A collective that begins and ends with these events.
  void add(gpu::Event before, gpu::Event after);
  // Ends the thread and the communicator: orderly, which waits for the other ranks, or by an abort. Again: nothing.
  void finish(bool orderly);

 private:
  struct Pending {
    gpu::Event before, after;
  };

  void loop();
  bool look();             // false: a failure is known; mutex_ not held
  void look_at_events();
  void abort();            // once; mutex_ not held
  ncclResult_t state(const char* call);  // mutex_ held. Error(peer) after an abort

  Control* const control_;
  std::mutex mutex_;  // guards the three below, and is held in NCCL calls, which must not overlap; all but the abort, after which there are none
  ncclComm_t comm_;
  bool aborted_ = false;
  std::deque<Pending> pending_;
  std::atomic<bool> stop_{false};
  const double deadline_;
  Patience patience_{deadline_};  // of the oldest collective; used by the thread
  uint64_t ended_ = 0;            // collectives; used by the thread
  bool begun_ = false;            // the oldest pending one has; used by the thread

  std::mutex thread_mutex_;  // guards thread_done_
  std::condition_variable thread_end_;
  bool thread_done_ = false;
  std::thread thread_;
};

}  // namespace sluice::comm
