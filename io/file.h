// An open file prepared for aligned, direct I/O.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "io/directory.h"

namespace sluice::io {

// Everything the engine transfers is a multiple of this and starts at a multiple of it, in memory and on
// disk.
inline constexpr size_t kAlignment = 4096;

enum class OpenMode { read, read_write };
enum class LockMode { shared, exclusive };

struct FileOptions {
  bool direct = true;  // ask for O_DIRECT; where it is refused, the page cache is used instead (see direct())
  FileObserver* observer = nullptr;  // tests: told of every write and sync of this file
};

// Owns one descriptor. Move-only. All members may be called from several threads at once, except close by the
// destructor. Errors are Error(disk) naming the path.
class File {
 public:
  File() = default;
  static File open(const std::filesystem::path& path, OpenMode mode, const FileOptions& options = {});
  // A new file of exactly `bytes`, fully allocated (fallocate; zero-filled where that is unsupported), so
  // that a full disk shows now. An existing file is an error; on any error no new file is left. Not yet
  // durable: call sync() and sync_directory().
  static File create(const std::filesystem::path& path, uint64_t bytes, const FileOptions& options = {});
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  int fd() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // False: transfers go through the page cache, because O_DIRECT was not asked for, is refused here (tmpfs,
  // some network file systems), or would need more than kAlignment, or because a writable file's size is no
  // multiple of kAlignment.
  bool direct() const { return alignment_ != 0; }
  size_t direct_alignment() const { return alignment_; }  // what the file system asks for; 0 without O_DIRECT
  const std::filesystem::path& path() const { return path_; }
  // Its name has been changed (io/directory.h), or that of a folder above it.
  void set_path(std::filesystem::path path) { path_ = std::move(path); }
  FileObserver* observer() const { return observer_; }
  uint64_t size() const;
  uint64_t link_count() const;

  // flock on this very descriptor. False when another process (or another File) holds it.
  bool try_lock(LockMode mode) const;

  // Small blocking transfers for headers and tables; any alignment (a bounce buffer is used). They stay
  // inside the file: short is an error, and so is writing past the end. Writes that share a 4 KiB page
  // without covering it are serialised among themselves, not against a queue's.
  void read_at(uint64_t offset, std::span<std::byte> out) const;
  void write_at(uint64_t offset, std::span<const std::byte> data) const;
  void sync() const;  // fdatasync; an error is final, never retried

 private:
  File(int fd, std::filesystem::path path, FileObserver* observer);
  static File open_flags(const std::filesystem::path& path, int flags, const FileOptions& options);
  void settle_direct();  // finds out whether O_DIRECT works, and drops it if not
  void allocate(uint64_t bytes) const;
  void zero_fill(uint64_t bytes) const;
  void write_bounced(uint64_t offset, std::span<const std::byte> data) const;

  int fd_ = -1;
  size_t alignment_ = 0;
  std::filesystem::path path_;
  FileObserver* observer_ = nullptr;
  std::unique_ptr<std::mutex> partial_pages_;  // held while a page is read, changed and written back
};

}  // namespace sluice::io
