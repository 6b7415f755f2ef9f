// A disk queue that keeps the time, around another one.
#pragma once
#include <memory>

#include "io/disk_queue.h"

namespace sluice::io {

// Its stats() are those of the inner queue, and the times of all requests from submit until done.
std::unique_ptr<DiskQueue> make_timed_queue(std::unique_ptr<DiskQueue> inner);

}  // namespace sluice::io
