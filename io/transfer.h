// What every queue does alike: cutting requests into pieces, capping what is in flight, and judging results.
#pragma once
#include <sys/types.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "io/disk_queue.h"

namespace sluice::io {

// A request on its way.
struct Transfer {
  IoRequest request;
  IoDone done;
  uint64_t byte_cap = 0;     // bytes in flight that its device takes without blocking the submitter
  int flags = 0;             // RWF_*, of every system call that transfers
  uint64_t observation = 0;  // token of the file's observer
  size_t issued = 0;         // bytes handed out as pieces
  bool all_issued = false;   // or the rest was given up after an error
  unsigned pieces = 0;       // in flight
  std::exception_ptr error;  // the first one
};

// One system call's worth of a transfer. data, bytes and offset are what is left of it.
struct Piece {
  std::shared_ptr<Transfer> transfer;
  IoOp op = IoOp::read;
  const File* file = nullptr;
  std::byte* data = nullptr;
  size_t bytes = 0;
  uint64_t offset = 0;
  size_t charged = 0;     // bytes counted as in flight
  unsigned attempts = 0;  // in a row without progress
  bool retried_eio = false;
  std::exception_ptr refused;  // set: finish with this error instead of transferring
};

enum class Verdict {
  complete,
  again,     // call again for what is left, after backoff(piece)
  blocking,  // the same, by a blocking call: the kernel keeps saying EAGAIN
  failed,
};
struct Outcome {
  Verdict verdict;
  std::exception_ptr error;  // with failed
};

// Not thread-safe: the queue that owns it locks.
class TransferBook {
 public:
  explicit TransferBook(const QueueOptions& options);

  void add(const IoRequest& request, IoDone done);  // Error(bug) when misaligned
  // The next piece in order of submission; none when all are issued or as much is in flight as may be.
  std::optional<Piece> next();
  // Applies the result of the system call (bytes, or -errno) to the piece. The rules: docs/design.md, "Disk
  // errors".
  Outcome apply(Piece& piece, int64_t result);
  // The piece has ended. Gives the transfer when it was its last piece: call its `done` unlocked, then
  // callback_returned().
  std::shared_ptr<Transfer> finish(const Piece& piece, std::exception_ptr error);
  void callback_returned() { --outstanding_; }

  bool idle() const { return outstanding_ == 0; }
  unsigned in_flight() const { return pieces_in_flight_; }
  const QueueStats& stats() const { return stats_; }

 private:
  struct Device {
    uint64_t byte_cap = 0;
    bool drops_from_cache = false;  // asked for files that are not direct only
  };
  const Device& device(dev_t number, const File& file);

  const QueueOptions options_;
  std::deque<std::shared_ptr<Transfer>> waiting_;  // with pieces still to issue
  std::map<std::pair<dev_t, bool>, Device> devices_;  // of direct files and of others
  uint64_t outstanding_ = 0;  // requests whose `done` has not returned
  unsigned pieces_in_flight_ = 0;
  uint64_t bytes_in_flight_ = 0;
  QueueStats stats_;
};

// The system call for what is left of the piece, blocking: bytes or -errno.
int64_t transfer_blocking(const Piece& piece);

// Sleeps a little after a result without progress: 20 us, doubled each time; some 10 ms over all attempts.
void backoff(const Piece& piece);

// Half of what the block device behind `device` queues before submitting blocks (nr_requests x
// max_sectors_kb); no limit for devices without a request queue.
uint64_t device_byte_cap(dev_t device);

}  // namespace sluice::io
