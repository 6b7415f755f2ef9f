#include "base/process_memory.h"

#include <fstream>
#include <sstream>
#include <string>

namespace sluice::base {
namespace {

// "VmRSS:     1234 kB" of /proc/self/status and /proc/meminfo.
template <class Take>
void read_lines(const std::filesystem::path& file, const Take& take) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t kib = 0;
    if (words >> name >> kib) take(name, kib << 10);
  }
}

}  // namespace

ProcessMemory read_process_memory(const std::filesystem::path& root) {
  ProcessMemory memory;
  read_lines(root / "proc/self/status", [&](const std::string& name, uint64_t bytes) {
    if (name == "VmRSS:") memory.resident = bytes;
    if (name == "VmHWM:") memory.resident_peak = bytes;
    if (name == "VmLck:" || name == "VmPin:") memory.locked += bytes;
    if (name == "VmSwap:") memory.swapped = bytes;
  });
  read_lines(root / "proc/meminfo", [&](const std::string& name, uint64_t bytes) {
    if (name == "Cached:") memory.page_cache = bytes;
  });
  return memory;
}

}  // namespace sluice::base
