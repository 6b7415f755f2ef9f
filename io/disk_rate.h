// How fast a file can be read and written, by bursts of large transfers.
#pragma once
#include <memory>
#include <vector>

#include "io/disk_queue.h"
#include "io/file.h"
#include "io/probe.h"

namespace sluice::io {

// Transfers of one size, so many in flight, through the queue that a run would use (SLUICE_IO), going round the file. Writes are of
// random bytes, so that no drive or file system can compress them.
class DiskBurst {
 public:
  // queue.block_size bytes each, a multiple of 4 KiB; the file is a multiple of that, and must outlive the object. Error(disk).
  explicit DiskBurst(const File& file, const QueueOptions& queue = {});
  ~DiskBurst();
  // For about so long, at least one transfer; returns the bytes moved. Error(disk) when a transfer fails.
  uint64_t run(IoOp op, double seconds) { return run(op, op, seconds); }
  uint64_t run(IoOp even, IoOp odd, double seconds);  // the two in turn
  uint64_t run_bytes(IoOp op, uint64_t bytes);        // so many, rounded up to whole transfers
  // Writes the file from its beginning on, once, for at most so long; what follows goes round what is written now. Blocks that were never
  // written are another thing: their first write also enters them in the file system, and a read of them need not reach the drive.
  void fill(double seconds);
  std::string describe() const;                       // of the queue

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Fills the file, overwrites it for about `seconds`, then reads it for as long. The file is some multiple of 4 MiB. Error(disk).
DiskRate measure_rate(const File& file, double seconds);

struct DiskProfile {
  double read = 0, write = 0, mixed = 0;  // bytes per second; mixed: reads and writes in turn, in sum
  double flush = 0;                       // seconds to make a few written blocks durable
};
// The same for all that a step does; about six times `seconds`. Error(disk).
DiskProfile measure_profile(const File& file, double seconds);

// Seconds from a write of so many bytes (a multiple of 4 KiB) until it is durable (fdatasync), again and again for about `seconds`.
// Error(disk).
std::vector<double> measure_commits(const File& file, uint64_t bytes, double seconds, const QueueOptions& queue = {});

// A file of so many bytes that nothing can leave behind: its name is gone as soon as it is open. Error(disk).
File temporary_file(const std::filesystem::path& directory, uint64_t bytes);

}  // namespace sluice::io
