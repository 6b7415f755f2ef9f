#include "io/directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "io/system_error.h"

namespace sluice::io {
namespace {

using base::ErrorKind;
using base::fail;

}  // namespace

void sync_directory(const std::filesystem::path& directory, FileObserver* observer) {
  const std::filesystem::path& name = directory.empty() ? std::filesystem::path(".") : directory;
  const int fd = ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    fail(ErrorKind::disk, "cannot open folder {} to flush it: {}", name.string(), errno_text(errno));
  const int error = fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  if (error != 0)
    fail(ErrorKind::disk, "flushing folder {} failed: {}{}. Names in it may not survive a power cut",
         name.string(), errno_text(error), errno_advice(error, name, 0));
  if (observer != nullptr) observer->directory_synced(name);
}

void make_directory(const std::filesystem::path& directory, FileObserver* observer) {
  if (mkdir(directory.c_str(), 0777) != 0)
    fail(ErrorKind::disk, "cannot make folder {}: {}{}", directory.string(), errno_text(errno),
         errno_advice(errno, directory.parent_path(), 0));
  if (observer != nullptr) observer->directory_made(directory);
}

void ensure_directory(const std::filesystem::path& directory, FileObserver* observer) {
  if (mkdir(directory.c_str(), 0777) == 0) {
    if (observer != nullptr) observer->directory_made(directory);
    return;
  }
  const int error = errno;
  if (error == EEXIST && std::filesystem::is_directory(directory)) return;
  fail(ErrorKind::disk, "cannot make folder {}: {}{}", directory.string(), errno_text(error),
       errno_advice(error, directory.parent_path(), 0));
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to, FileObserver* observer) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    fail(ErrorKind::disk, "cannot rename {} to {}: {}", from.string(), to.string(), errno_text(errno));
  if (observer != nullptr) observer->renamed(from, to);
}

void exchange_paths(const std::filesystem::path& a, const std::filesystem::path& b, FileObserver* observer) {
  if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) != 0)
    fail(ErrorKind::disk, "cannot exchange the names {} and {}: {}", a.string(), b.string(), errno_text(errno));
  if (observer != nullptr) observer->exchanged(a, b);
}

bool can_exchange_paths(const std::filesystem::path& folder) {
  const std::filesystem::path a = folder / "exchange-a", b = folder / "exchange-b";
  ensure_directory(a);  // may have been left by a process that was killed here
  ensure_directory(b);
  const bool can = renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
  remove_tree(a);
  remove_tree(b);
  return can;
}

void link_file(const std::filesystem::path& from, const std::filesystem::path& to, FileObserver* observer) {
  if (::link(from.c_str(), to.c_str()) != 0)
    fail(ErrorKind::disk, "cannot link {} as {}: {}", from.string(), to.string(), errno_text(errno));
  if (observer != nullptr) observer->linked(from, to);
}

void remove_tree(const std::filesystem::path& path, FileObserver* observer) {
  std::error_code error;
  uintmax_t removed = 0;
  do removed = std::filesystem::remove_all(path, error);
  while (error == std::errc::no_such_file_or_directory);  // somebody else was faster with a name below it
  if (error) fail(ErrorKind::disk, "cannot remove {}: {}", path.string(), error.message());
  if (removed != 0 && observer != nullptr) observer->removed(path);
}

}  // namespace sluice::io
