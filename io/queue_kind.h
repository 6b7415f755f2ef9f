// Which disk queue this machine lets us have.
#pragma once
#include "io/disk_queue.h"

namespace sluice::io {

// uring or threads, never automatic. What was asked for (automatic: by SLUICE_IO, when set) or else io_uring where it works. Where it does not:
// threads with one log line saying why; an Error(disk) when it was asked for, or when strict.
QueueKind usable_kind(QueueKind wanted, bool strict);

}  // namespace sluice::io
