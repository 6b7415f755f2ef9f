// How fast a file can be read and written, by a short burst of large transfers.
#pragma once
#include "io/file.h"
#include "io/probe.h"

namespace sluice::io {

// Overwrites the file with random bytes for about `seconds`, then reads it for as long, through the queue
// that a run would use (SLUICE_IO). The file is some multiple of 4 MiB. Error(disk) when a transfer fails.
DiskRate measure_rate(const File& file, double seconds);

struct DiskProfile {
  double read = 0, write = 0, mixed = 0;  // bytes per second; mixed: reads and writes in turn, in sum
  double flush = 0;                       // seconds to make a few written blocks durable
};
// The same for all that a step does; four bursts of `seconds`. Error(disk).
DiskProfile measure_profile(const File& file, double seconds);

// A file of so many bytes that nothing can leave behind: its name is gone as soon as it is open. Error(disk).
File temporary_file(const std::filesystem::path& directory, uint64_t bytes);

}  // namespace sluice::io
