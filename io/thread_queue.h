// A disk queue of blocking pread and pwrite calls on a few threads: works everywhere, as fast as io_uring for
// large blocks, at a higher price in CPU time.
#pragma once
#include <memory>

#include "io/disk_queue.h"

namespace sluice::io {

std::unique_ptr<DiskQueue> make_thread_queue(const QueueOptions& options);

}  // namespace sluice::io
