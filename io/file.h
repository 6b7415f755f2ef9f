// An open file prepared for aligned, direct I/O.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace sluice::io {

// Everything the engine transfers is a multiple of this and starts at a multiple of it, in memory and on disk.
inline constexpr size_t kAlignment = 4096;

enum class OpenMode { read, read_write };
enum class LockMode { shared, exclusive };

// Owns one descriptor. Move-only. All members may be called from several threads at once, except close by the destructor.
// Errors are Error(disk) naming the path.
class File {
 public:
  File() = default;
  static File open(const std::filesystem::path& path, OpenMode mode);
  // A new file of exactly `bytes`, fully allocated (fallocate; zero-filled where that is unsupported), so that a full
  // disk shows now. An existing file is an error. Not yet durable: call sync() and sync_directory().
  static File create(const std::filesystem::path& path, uint64_t bytes);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  int fd() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  bool direct() const { return direct_; }  // false: O_DIRECT was refused here; transfers go through the page cache
  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const;
  uint64_t link_count() const;

  // flock on this very descriptor. False when another process holds it.
  bool try_lock(LockMode mode) const;

  // Small blocking transfers for headers and tables; any alignment (a bounce buffer is used). Short is an error.
  void read_at(uint64_t offset, std::span<std::byte> out) const;
  void write_at(uint64_t offset, std::span<const std::byte> data) const;
  void sync() const;  // fdatasync; an error is final, never retried

 private:
  int fd_ = -1;
  bool direct_ = false;
  std::filesystem::path path_;
};

void sync_directory(const std::filesystem::path& directory);

}  // namespace sluice::io
