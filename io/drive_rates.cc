#include "io/drive_rates.h"

#include <algorithm>
#include <future>

#include "base/error.h"
#include "base/units.h"

namespace sluice::io {
namespace {

using base::operator""_MiB;

constexpr uint64_t kLeastProbe = 16_MiB;

// A small part of what is free; of several drives, which may be one.
uint64_t probe_bytes(const std::filesystem::path& folder, size_t drives) {
  return std::min<uint64_t>(512_MiB, std::filesystem::space(folder).available / 10 / drives / 4_MiB * 4_MiB);
}

File probe_file(const std::filesystem::path& folder, size_t drives) {
  const uint64_t bytes = probe_bytes(folder, drives);
  if (bytes < kLeastProbe)
    base::fail(base::ErrorKind::disk, "{} has {} free: too little to measure the disk; free some, or name a profile with --machine",
               folder.string(), base::format_bytes(std::filesystem::space(folder).available));
  return temporary_file(folder, bytes);
}

}  // namespace

std::filesystem::path too_full_to_measure(const std::vector<std::filesystem::path>& folders) {
  const auto full = std::find_if(folders.begin(), folders.end(), [&](const auto& f) { return probe_bytes(f, folders.size()) < kLeastProbe; });
  return full == folders.end() ? std::filesystem::path() : *full;
}

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
