#include "engine/plain_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/units.h"

namespace sluice::engine {

using base::ErrorKind;
using base::fail;

PlainFile PlainFile::open(const std::filesystem::path& path, ErrorKind kind) {
  PlainFile file;
  file.path_ = path;
  file.kind_ = kind;
  // O_NONBLOCK: opening a FIFO by mistake must not hang.
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) fail(kind, "cannot open {}: {}", path.string(), std::strerror(errno));
  struct stat status {};
  if (fstat(file.fd_, &status) != 0) fail(kind, "cannot stat {}: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(kind, "{} is not a regular file", path.string());
  file.size_ = static_cast<uint64_t>(status.st_size);
  return file;
}

PlainFile PlainFile::create(const std::filesystem::path& path) {
  PlainFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file.fd_ < 0) fail(ErrorKind::disk, "cannot create {}: {}", path.string(), std::strerror(errno));
  return file;
}

PlainFile::~PlainFile() {
  if (fd_ >= 0) ::close(fd_);
}

PlainFile::PlainFile(PlainFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      kind_(other.kind_),
      path_(std::move(other.path_)) {}

PlainFile& PlainFile::operator=(PlainFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(kind_, other.kind_);
  std::swap(path_, other.path_);
  return *this;
}

void PlainFile::read_at(uint64_t offset, void* out, size_t bytes) const {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(fd_, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(kind_, "cannot read {} at {}: {}", path_.string(), offset, std::strerror(errno));
    if (got == 0)
      fail(kind_, "{} ends at {}, {} bytes early; it was cut while in use, or is damaged", path_.string(),
           offset, bytes);
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

void PlainFile::append(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::write(fd_, from, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0)
      fail(ErrorKind::disk, "cannot write {} at {}: {}", path_.string(), base::format_bytes(size_),
           std::strerror(errno));
    from += put;
    size_ += static_cast<uint64_t>(put);
    bytes -= static_cast<size_t>(put);
  }
}

void PlainFile::sync() {
  if (fsync(fd_) != 0) fail(ErrorKind::disk, "cannot flush {}: {}", path_.string(), std::strerror(errno));
}

std::string read_text_file(const std::filesystem::path& path, ErrorKind kind, uint64_t limit) {
  const PlainFile file = PlainFile::open(path, kind);
  if (file.size() > limit)
    fail(kind, "{} has {}, more than the {} such a file may have", path.string(),
         base::format_bytes(file.size()), base::format_bytes(limit));
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size());
  refuse_lfs_pointer(text, path);
  return text;
}

void refuse_lfs_pointer(std::string_view beginning, const std::filesystem::path& path) {
  if (beginning.starts_with("version https://git-lfs.github.com/spec/"))
    fail(ErrorKind::model, "{} is a git-lfs pointer, not the file itself; run `git lfs pull` in {}",
         path.string(), path.parent_path().string());
}

}  // namespace sluice::engine
