// How fast a file can be read and written, by a short burst of large transfers.
#pragma once
#include "io/file.h"
#include "io/probe.h"

namespace sluice::io {

// Overwrites the file with random bytes for about `seconds`, then reads it for as long, through the queue
// that a run would use (SLUICE_IO). The file is some multiple of 4 MiB. Error(disk) when a transfer fails.
DiskRate measure_rate(const File& file, double seconds);

}  // namespace sluice::io
