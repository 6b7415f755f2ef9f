// What the operating system says this process takes of the machine's memory.
#pragma once
#include <cstdint>
#include <filesystem>

namespace sluice::base {

struct ProcessMemory {  // bytes
  uint64_t resident = 0, resident_peak = 0;
  uint64_t locked = 0;      // may not be swapped out: locked, or pinned for the kernel or a device
  uint64_t swapped = 0;
  uint64_t page_cache = 0;  // of the whole machine: direct I/O leaves it alone
};

// root: where proc is found, "/" except in tests. What cannot be read is 0.
ProcessMemory read_process_memory(const std::filesystem::path& root = "/");

}  // namespace sluice::base
