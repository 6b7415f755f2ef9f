#include "engine/comm/nccl_watch.h"

#include <pthread.h>

#include <chrono>
#include <exception>
#include <utility>

#include "base/error.h"

namespace sluice::comm {
namespace {

using base::ErrorKind;
using std::chrono::milliseconds;

constexpr milliseconds kLook{20};       // between looks at the communicator
constexpr int kEager = 1000;            // looks without a pause, while the host waits for it: a group is on its stream in a fraction of a
                                        // millisecond, and until then the thread issues nothing else
constexpr milliseconds kPoll{1};        // between those that follow
constexpr std::chrono::seconds kHang{10};  // that an abort, or an orderly end, may take

bool failed(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

}  // namespace

void NcclWatch::start() {
  int device = 0;
  nccl::check(cudaGetDevice(&device), "cudaGetDevice");
  thread_ = std::thread([self = shared_from_this(), device] {
    pthread_setname_np(pthread_self(), "nccl watch");
    // A new thread is on device 0, where NCCL, which comes back to the thread's device after its work, would make a context.
    if (cudaSetDevice(device) != cudaSuccess) cudaGetLastError();  // it is lost: that shows in the collectives
    self->loop();
    const std::lock_guard lock(self->thread_mutex_);
    self->thread_done_ = true;
    self->thread_end_.notify_all();
  });
}

ncclResult_t NcclWatch::state(const char* call) {
  control_->check();
  if (aborted_) base::fail(ErrorKind::peer, "{}: the communicator has been aborted", call);
  ncclResult_t result = ncclSuccess;
  nccl::check(ncclCommGetAsyncError(comm_, &result), "ncclCommGetAsyncError", comm_);
  nccl::check(result, call, comm_);
  return result;
}

void NcclWatch::settle(const char* call) {
  Patience patience(deadline_);
  for (int looks = 1;; ++looks) {
    {
      const std::lock_guard lock(mutex_);
      if (state(call) == ncclSuccess) return;
    }
    if (looks < kEager) {
      std::this_thread::yield();
      continue;
    }
    if (patience.over())
      control_->throw_failure({control_->rank(), ErrorKind::peer,
                               fmt::format("{} has not connected it to the others within {:.0f} s; NCCL_DEBUG=INFO says more", call, deadline_)});
    std::this_thread::sleep_for(kPoll);
  }
}

void NcclWatch::group(const char* call, const std::function<ncclResult_t(ncclComm_t)>& calls) {
  {
    const std::lock_guard lock(mutex_);
    state(call);
    nccl::check(ncclGroupStart(), "ncclGroupStart", comm_);
    const ncclResult_t first = calls(comm_);
    const ncclResult_t end = ncclGroupEnd();  // in any case: the thread must leave the group
    nccl::check(first, call, comm_);
    nccl::check(end, "ncclGroupEnd", comm_);
  }
  settle(call);
}

void NcclWatch::add(gpu::Event before, gpu::Event after) {
  const std::lock_guard lock(mutex_);
  pending_.push_back({std::move(before), std::move(after)});
}

void NcclWatch::loop() {
  for (; !stop_; std::this_thread::sleep_for(kLook))
    if (!look()) return abort();
}

bool NcclWatch::look() try {
  if (control_->failed()) return false;
  ncclResult_t result = ncclSuccess;
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
    if (failed(asked)) result = asked;
    if (failed(result)) text = fmt::format("NCCL: {} ({})", ncclGetErrorString(result), ncclGetLastError(comm_));
  }
  if (failed(result)) {
    control_->blame({control_->rank(), ErrorKind::peer, text});
    return false;
  }
  look_at_events();
  return !control_->failed();
} catch (const std::exception& error) {
  control_->fail(ErrorKind::bug, error.what());
  return false;
}

void NcclWatch::look_at_events() {
  for (;;) {
    Pending oldest;
    {
      const std::lock_guard lock(mutex_);
      if (pending_.empty()) return;
      oldest = pending_.front();
    }
    if (!begun_ && oldest.before.reached()) {
      begun_ = true;
      control_->set_progress(ended_ + 1);
      patience_.reset();
    }
    if (!oldest.after.reached()) break;
    const std::lock_guard lock(mutex_);
    pending_.pop_front();
    ++ended_;
    begun_ = false;
  }
  if (!begun_ || !patience_.over()) return;
  const int late = control_->laggard();
  if (late >= 0)
    control_->blame({late, ErrorKind::peer, fmt::format("rank {} has waited for it in a collective for {:.0f} s", control_->rank(), deadline_)});
  else
    control_->blame({control_->rank(), ErrorKind::peer,
                     fmt::format("a collective has not ended within {:.0f} s, although the others have begun it", deadline_)});
}

// Whoever has the mutex after this sees aborted_ and calls nothing, so the abort runs beside no other call. Not with the mutex: an abort may
// hang, and the thread that enqueues must get its error all the same.
void NcclWatch::abort() {
  ncclComm_t comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    std::swap(comm, comm_);
  }
  if (comm != nullptr) ncclCommAbort(comm);
}

void NcclWatch::finish(bool orderly) {
  if (!thread_.joinable()) return;
  stop_ = true;
  {
    std::unique_lock lock(thread_mutex_);
    if (!thread_end_.wait_for(lock, kHang, [this] { return thread_done_; })) return thread_.detach();  // an abort of NCCL hangs; the process ends soon
  }
  thread_.join();
  if (aborted_ || comm_ == nullptr) return;
  if (orderly && !failed(ncclCommFinalize(comm_))) {
    ncclResult_t result = ncclInProgress;
    for (Patience patience(10); result == ncclInProgress && !patience.over(); std::this_thread::sleep_for(kPoll))
      if (failed(ncclCommGetAsyncError(comm_, &result))) break;
    if (result == ncclSuccess) {
      ncclCommDestroy(comm_);
      comm_ = nullptr;
      return;
    }
  }
  abort();
}

}  // namespace sluice::comm
