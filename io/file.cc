#include "io/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "io/system_error.h"

namespace sluice::io {
namespace {

using base::ErrorKind;
using base::fail;
using base::format_bytes;

constexpr size_t kBounceBytes = 1 << 20;
constexpr size_t kZeroFillBytes = 4 << 20;

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using AlignedBuffer = std::unique_ptr<std::byte[], Free>;

AlignedBuffer aligned_buffer(size_t bytes) {
  void* p = std::aligned_alloc(kAlignment, base::round_up(bytes, kAlignment));
  if (p == nullptr) throw std::bad_alloc();
  return AlignedBuffer(static_cast<std::byte*>(p));
}

bool is_aligned(uint64_t value) {
  return value % kAlignment == 0;
}

uint64_t round_down(uint64_t value) {
  return value / kAlignment * kAlignment;
}

bool in_memory_file_system(int fd) {
  struct statfs info {};
  if (fstatfs(fd, &info) != 0) return false;
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

// Blocking, as much as there is: returns less than asked only at the end of the file. Throws on errors.
size_t read_up_to(const File& file, std::byte* data, size_t bytes, uint64_t offset) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(file.fd(), data + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail(ErrorKind::disk, "reading {} at {} of {} failed: {}{}", format_bytes(bytes), offset,
           file.path().string(), errno_text(errno), errno_advice(errno, file.path(), bytes));
    if (got == 0) break;
    done += static_cast<size_t>(got);
    if (file.direct() && !is_aligned(done)) break;  // only the end of the file leaves a part of a page
  }
  return done;
}

void write_all(const File& file, const std::byte* data, size_t bytes, uint64_t offset) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t put = pwrite(file.fd(), data + done, bytes - done, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    const size_t kept = put <= 0        ? 0
                        : file.direct() ? round_down(static_cast<uint64_t>(put))
                                        : static_cast<size_t>(put);
    if (kept == 0) {
      const int error = put < 0 ? errno : EIO;
      fail(ErrorKind::disk, "writing {} at {} of {} failed: {}{}", format_bytes(bytes), offset,
           file.path().string(), errno_text(error), errno_advice(error, file.path(), bytes));
    }
    done += kept;
  }
}

}  // namespace

File::File(int fd, std::filesystem::path path, FileObserver* observer)
    : fd_(fd), path_(std::move(path)), observer_(observer), partial_pages_(std::make_unique<std::mutex>()) {}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      alignment_(std::exchange(other.alignment_, 0)),
      path_(std::move(other.path_)),
      observer_(std::exchange(other.observer_, nullptr)),
      partial_pages_(std::move(other.partial_pages_)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    alignment_ = std::exchange(other.alignment_, 0);
    path_ = std::move(other.path_);
    observer_ = std::exchange(other.observer_, nullptr);
    partial_pages_ = std::move(other.partial_pages_);
  }
  return *this;
}

// Some file systems refuse O_DIRECT at open, some (settle_direct) only at the first transfer.
File File::open_flags(const std::filesystem::path& path, int flags, const FileOptions& options) {
  int fd = options.direct ? ::open(path.c_str(), flags | O_CLOEXEC | O_DIRECT, 0666) : -1;
  const bool direct = fd >= 0;
  // EINVAL may come after O_CREAT has made the file; O_EXCL would then refuse our own.
  if (!direct && options.direct && errno == EINVAL && (flags & O_CREAT) != 0) ::unlink(path.c_str());
  if (!direct && (!options.direct || errno == EINVAL)) fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (fd < 0)
    fail(ErrorKind::disk, "cannot {} {}: {}{}", (flags & O_CREAT) != 0 ? "create" : "open", path.string(),
         errno_text(errno), errno_advice(errno, path.parent_path(), 0));
  File file(fd, path, options.observer);
  if (direct) file.settle_direct();
  return file;
}

File File::open(const std::filesystem::path& path, OpenMode mode, const FileOptions& options) {
  return open_flags(path, mode == OpenMode::read ? O_RDONLY : O_RDWR, options);
}

File File::create(const std::filesystem::path& path, uint64_t bytes, const FileOptions& options) {
  FileOptions wanted = options;
  wanted.direct = options.direct && is_aligned(bytes);
  File file = open_flags(path, O_RDWR | O_CREAT | O_EXCL, wanted);
  try {
    if (bytes != 0) file.allocate(bytes);
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
  if (file.observer_ != nullptr) file.observer_->created(file, bytes);
  return file;
}

void File::settle_direct() {
  struct statx info {};
  const bool known = statx(fd_, "", AT_EMPTY_PATH, STATX_DIOALIGN | STATX_SIZE, &info) == 0;
  const bool writable = (fcntl(fd_, F_GETFL) & O_ACCMODE) != O_RDONLY;
  bool direct = known && !in_memory_file_system(fd_) && (!writable || is_aligned(info.stx_size));
  size_t alignment = kAlignment;
  if (direct && (info.stx_mask & STATX_DIOALIGN) != 0) {
    alignment = std::max(info.stx_dio_offset_align, info.stx_dio_mem_align);
    direct = alignment != 0 && alignment <= kAlignment;
  } else if (direct) {  // an older kernel, or a file system that does not say: try
    const AlignedBuffer page = aligned_buffer(kAlignment);
    direct = pread(fd_, page.get(), kAlignment, 0) >= 0;
  }
  if (direct) {
    alignment_ = alignment;
  } else if (const int flags = fcntl(fd_, F_GETFL); fcntl(fd_, F_SETFL, flags & ~O_DIRECT) != 0) {
    fail(ErrorKind::disk, "cannot leave direct I/O on {}: {}", path_.string(), errno_text(errno));
  }
}

void File::allocate(uint64_t bytes) const {
  int error = 0;
  do {
    error = fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == EOPNOTSUPP || error == ENOSYS) return zero_fill(bytes);
  if (error != 0) {
    std::ignore = ftruncate(fd_, 0);  // what was allocated before the disk was full is not "had" by us
    fail(ErrorKind::disk, "cannot allocate {} for {}: {}{}", format_bytes(bytes), path_.string(),
         errno_text(error), errno_advice(error, path_, bytes));
  }
}

void File::zero_fill(uint64_t bytes) const {
  const AlignedBuffer zeros = aligned_buffer(kZeroFillBytes);
  std::memset(zeros.get(), 0, kZeroFillBytes);
  for (uint64_t offset = 0; offset < bytes; offset += kZeroFillBytes)
    write_all(*this, zeros.get(), std::min<uint64_t>(kZeroFillBytes, bytes - offset), offset);
}

uint64_t File::size() const {
  struct stat info {};
  if (fstat(fd_, &info) != 0) fail(ErrorKind::disk, "cannot stat {}: {}", path_.string(), errno_text(errno));
  return static_cast<uint64_t>(info.st_size);
}

uint64_t File::link_count() const {
  struct stat info {};
  if (fstat(fd_, &info) != 0) fail(ErrorKind::disk, "cannot stat {}: {}", path_.string(), errno_text(errno));
  return info.st_nlink;
}

bool File::try_lock(LockMode mode) const {
  const int operation = (mode == LockMode::shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  while (flock(fd_, operation) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR)
      fail(ErrorKind::disk, "cannot lock {}: {}. The file system may not support flock", path_.string(),
           errno_text(errno));
  }
  return true;
}

void File::read_at(uint64_t offset, std::span<std::byte> out) const {
  size_t done = 0;
  const bool straight = !direct() || (is_aligned(offset) && is_aligned(out.size()) &&
                                      is_aligned(reinterpret_cast<uintptr_t>(out.data())));
  if (straight) {
    done = read_up_to(*this, out.data(), out.size(), offset);
  } else {
    const size_t capacity =
        std::min<size_t>(kBounceBytes, base::round_up(out.size() + kAlignment, kAlignment));
    const AlignedBuffer bounce = aligned_buffer(capacity);
    while (done < out.size()) {
      const uint64_t begin = round_down(offset + done);
      const size_t skip = offset + done - begin;
      const size_t want = std::min<size_t>(capacity, base::round_up(skip + out.size() - done, kAlignment));
      const size_t got = read_up_to(*this, bounce.get(), want, begin);
      if (got <= skip) break;
      const size_t take = std::min(got - skip, out.size() - done);
      std::memcpy(out.data() + done, bounce.get() + skip, take);
      done += take;
      if (got < want) break;
    }
  }
  if (done < out.size())
    fail(ErrorKind::disk,
         "{} is too short: need {} bytes at {}, the file has {}. It was cut off, or is not what it seems",
         path_.string(), out.size(), offset, size());
}

void File::write_at(uint64_t offset, std::span<const std::byte> data) const {
  if (const uint64_t have = size(); offset > have || data.size() > have - offset)
    fail(ErrorKind::disk, "write past the end of {}: {} bytes at {}, the file has {}", path_.string(),
         data.size(), offset, have);
  const uint64_t token = observer_ != nullptr ? observer_->write_begins(*this, offset, data) : 0;
  const bool straight = !direct() || (is_aligned(offset) && is_aligned(data.size()) &&
                                      is_aligned(reinterpret_cast<uintptr_t>(data.data())));
  if (straight)
    write_all(*this, data.data(), data.size(), offset);
  else
    write_bounced(offset, data);
  if (observer_ != nullptr) observer_->write_ended(token);
}

void File::write_bounced(uint64_t offset, std::span<const std::byte> data) const {
  const AlignedBuffer bounce = aligned_buffer(kBounceBytes);
  for (size_t done = 0; done < data.size();) {
    const uint64_t begin = round_down(offset + done);
    const size_t skip = offset + done - begin;
    const size_t take = std::min(kBounceBytes - skip, data.size() - done);
    const size_t span = base::round_up(skip + take, kAlignment);
    std::unique_lock<std::mutex> lock(*partial_pages_, std::defer_lock);
    if (skip != 0 || skip + take != span) {
      lock.lock();
      read_up_to(*this, bounce.get(), kAlignment, begin);
      read_up_to(*this, bounce.get() + span - kAlignment, kAlignment, begin + span - kAlignment);
    }
    std::memcpy(bounce.get() + skip, data.data() + done, take);
    write_all(*this, bounce.get(), span, begin);
    done += take;
  }
}

void File::sync() const {
  const uint64_t token = observer_ != nullptr ? observer_->sync_begins(*this) : 0;
  if (fdatasync(fd_) != 0)
    fail(ErrorKind::disk, "flushing {} failed: {}{}. What was written since the last flush may be lost",
         path_.string(), errno_text(errno), errno_advice(errno, path_, 0));
  if (observer_ != nullptr) observer_->sync_ended(token);
}

}  // namespace sluice::io
