// A disk queue on io_uring: one ring and one I/O thread, buffers registered with the kernel.
#pragma once
#include <memory>
#include <string>

#include "io/disk_queue.h"

namespace sluice::io {

// Whether io_uring works here, by really setting up a ring and reading through it.
struct UringStatus {
  int error = 0;      // errno of the step that failed; 0: usable
  std::string step;   // which step
  int disabled = -1;  // sysctl kernel.io_uring_disabled; -1: the kernel has none
  std::string flags;  // set-up flags that this kernel takes: "SINGLE_ISSUER, DEFER_TASKRUN"

  bool usable() const { return error == 0; }
  std::string explanation() const;  // step, errno, sysctl and likely cause in one line
};
UringStatus probe_uring();

// Queues of one process that register the same memory: the kernel counts it against RLIMIT_MEMLOCK once for each. When it refuses one of them, one
// log line says so for all, and those that come after are not tried.
struct RingGroup {
  unsigned rings = 1;
  bool refused = false;  // only register_memory() looks at it: not on two queues of a group at once
};

// Error(disk) when the ring cannot be set up. Without a group it is alone.
std::unique_ptr<DiskQueue> make_uring_queue(const QueueOptions& options, std::shared_ptr<RingGroup> group = nullptr);

}  // namespace sluice::io
