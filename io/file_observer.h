// The seam through which tests see every change made to files: what power-cut simulation records.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace sluice::io {

class File;

// Given to File::open and File::create (FileOptions::observer) and to the functions of io/directory.h; then
// it is told of everything that this process changes through them: File::write_at and sync as well as writes
// and syncs that a DiskQueue carries out on that File. Production code passes null and pays one comparison.
//
// A write or sync is a pair of calls; the token of the first names it in the second. A failed one is never
// ended. Calls come from several threads at once; implementations lock, are quick and do not throw. Must
// outlive the files. The one implementation is PowerCutRecorder (io/power_cut.h).
class FileObserver {
 public:
  virtual ~FileObserver() = default;

  // The name exists, the content is zeros, nothing is durable.
  virtual void created(const File& file, uint64_t bytes) = 0;
  virtual uint64_t write_begins(const File& file, uint64_t offset, std::span<const std::byte> data) = 0;
  virtual void write_ended(uint64_t token) = 0;
  virtual uint64_t sync_begins(const File& file) = 0;
  virtual void sync_ended(uint64_t token) = 0;

  // After the change was made.
  virtual void directory_made(const std::filesystem::path& directory) = 0;
  virtual void directory_synced(const std::filesystem::path& directory) = 0;
  virtual void renamed(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual void exchanged(const std::filesystem::path& a, const std::filesystem::path& b) = 0;
  virtual void linked(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual void removed(const std::filesystem::path& path) = 0;  // with all that is below it
};

}  // namespace sluice::io
