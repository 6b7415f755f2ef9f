// A regular file read or written through the page cache, for model folders and token files. Never mapped: a
// file that somebody truncates must end in an error, not in SIGBUS.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/error.h"

namespace sluice::engine {

// Owns one descriptor. Move-only. read_at may be called from several threads at once. Errors are of the kind
// given at opening, but for a failed write or sync, which is Error(disk).
class PlainFile {
 public:
  PlainFile() = default;
  // An existing regular file (or a link to one).
  static PlainFile open(const std::filesystem::path& path, base::ErrorKind kind);
  // A new, empty file; an existing one is an error.
  static PlainFile create(const std::filesystem::path& path);
  ~PlainFile();
  PlainFile(PlainFile&& other) noexcept;
  PlainFile& operator=(PlainFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }                        // when it was opened
  void read_at(uint64_t offset, void* out, size_t bytes) const;  // all of it, or an error
  void append(const void* data, size_t bytes);
  void sync();  // fsync; final, never retried

 private:
  int fd_ = -1;
  uint64_t size_ = 0;
  base::ErrorKind kind_ = base::ErrorKind::disk;
  std::filesystem::path path_;
};

// The whole of a small text file. Error(kind) when it is missing, a git-lfs pointer, or larger than `limit`
// bytes.
std::string read_text_file(const std::filesystem::path& path, base::ErrorKind kind,
                           uint64_t limit = 256u << 20);

// Error(model) that says `git lfs pull` when the text begins like a git-lfs pointer.
void refuse_lfs_pointer(std::string_view beginning, const std::filesystem::path& path);

}  // namespace sluice::engine
