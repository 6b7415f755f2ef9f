// The contract of an asynchronous disk queue, and how callers wait.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>

#include "io/file.h"
#include "io/queue_times.h"

namespace sluice::io {

enum class IoOp { read, write, sync };

// One transfer of any length, zero included; data, bytes and offset are multiples of kAlignment, and the
// range lies inside the file (sync: no data). The file and the memory stay alive and the memory untouched
// until `done` has been called. A sync (fdatasync) covers the writes that were done before it was submitted;
// an error of it is final.
struct IoRequest {
  IoOp op = IoOp::read;
  const File* file = nullptr;
  std::byte* data = nullptr;
  size_t bytes = 0;
  uint64_t offset = 0;
};

// Called exactly once, on a thread of the queue: null on success, else an Error(disk) naming file, offset and
// cause. Must be quick and must not throw; may submit further requests.
using IoDone = std::function<void(std::exception_ptr)>;

struct QueueStats {  // retries: system calls repeated after EAGAIN, EINTR or one EIO of a read
  uint64_t bytes_read = 0, bytes_written = 0, requests = 0, retries = 0, short_transfers = 0, failures = 0;
  QueueTimes reads, writes;  // only of a timed queue (timed_queue.h)
};

struct QueueOptions {
  size_t block_size = 4 << 20;  // a request is cut into pieces of this size (aio.block_size)
  unsigned depth = 8;           // pieces in flight (aio.queue_depth)
  bool strict = false;          // a fallback is an error instead of a log line
  // Tests: sees the result of every system call (bytes or -errno) and returns the one to act on. Called with
  // the queue locked, so one call at a time. A short result means that the rest is transferred again.
  std::function<int64_t(IoOp op, uint64_t offset, int64_t result)> alter_result;
};

// Implementations: UringQueue, ThreadQueue, FaultyQueue (tests). All members are thread-safe.
// A request is complete when every piece has transferred in full: results are checked, short ones resumed (io
// rules: docs/design.md, "Disk errors"). Requests may complete in any order; no ordering between overlapping
// requests.
class DiskQueue {
 public:
  virtual ~DiskQueue() = default;  // drains first
  // Returns at once. Misaligned requests and closed files throw Error(bug) here, and `done` is not called.
  virtual void submit(const IoRequest& request, IoDone done) = 0;
  // Memory that transfers will use, to be registered with the kernel once. Call while nothing is in flight;
  // the memory must outlive the queue. May do nothing. A second call adds to the first.
  virtual void register_memory(std::span<const std::span<std::byte>> regions) = 0;
  // Returns when nothing is in flight and every `done` has returned. Not from within `done`.
  virtual void drain() = 0;
  virtual QueueStats stats() const = 0;
  virtual std::string describe() const = 0;  // "io_uring, registered buffers", ...
};

// Submit and get a future; get() rethrows the error.
std::future<void> submit(DiskQueue& queue, const IoRequest& request);

enum class QueueKind { automatic, uring, threads };

// automatic: SLUICE_IO=uring|threads when set, else io_uring, else threads with one log line saying why
// (strict: an error). uring, asked for by name or by SLUICE_IO, is an Error(disk) where it is refused.
std::unique_ptr<DiskQueue> make_queue(QueueKind kind, const QueueOptions& options);

}  // namespace sluice::io
