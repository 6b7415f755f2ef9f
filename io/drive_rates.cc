#include "io/drive_rates.h"

#include <algorithm>
#include <future>

#include "base/error.h"
#include "base/units.h"

namespace sluice::io {
namespace {

using base::operator""_MiB;

File probe_file(const std::filesystem::path& folder, size_t drives) {
  const uint64_t free = std::filesystem::space(folder).available;
  const uint64_t bytes = std::min<uint64_t>(512_MiB, free / 10 / drives / 4_MiB * 4_MiB);
  if (bytes < 16_MiB)
    base::fail(base::ErrorKind::disk, "{} has {} free: too little to measure the disk; free some, or name a profile with --machine",
               folder.string(), base::format_bytes(free));
  return temporary_file(folder, bytes);
}

}  // namespace

std::vector<DiskProfile> measure_drives(const std::vector<std::filesystem::path>& folders, double seconds) {
  std::vector<File> files;
  for (const std::filesystem::path& folder : folders) files.push_back(probe_file(folder, folders.size()));
  std::vector<std::future<DiskProfile>> drives;
  for (const File& file : files) drives.push_back(std::async(std::launch::async, [&file, seconds] { return measure_profile(file, seconds); }));
  for (auto& drive : drives) drive.wait();  // the files outlive the measuring when one of them fails
  std::vector<DiskProfile> found;
  for (auto& drive : drives) found.push_back(drive.get());
  return found;
}

}  // namespace sluice::io
