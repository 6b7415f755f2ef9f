#include "io/system_error.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>

#include "base/units.h"

namespace sluice::io {

std::string errno_text(int error) {
  const char* text = strerrordesc_np(error);
  const char* name = strerrorname_np(error);
  return text != nullptr && name != nullptr ? fmt::format("{} ({})", text, name)
                                            : fmt::format("error {}", error);
}

std::string errno_advice(int error, const std::filesystem::path& path, uint64_t bytes) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return fmt::format(": {}have {}{}. Free some space, or put storage.paths on a larger drive",
                         bytes == 0 ? "" : fmt::format("need {}, ", base::format_bytes(bytes)), base::format_bytes(free_space(path)),
                         error == EDQUOT ? " less the user's quota" : "");
    case EIO:
      return ". The drive or its connection reports a fault: see dmesg and the drive's SMART log";
    case EINVAL:
      return ". The file system may refuse direct I/O of this alignment: run sluice doctor --dir on its "
             "folder";
    case EROFS:
      return ". The file system is mounted read-only";
    case EBADF:
      return ". The file is closed, or not open for this kind of access";
    case EFBIG:
      return ". The file is larger than this file system or `ulimit -f` allows";
    case EMFILE:
      return ". Too many open files: raise `ulimit -n`";
    default:
      return "";
  }
}

uint64_t free_space(const std::filesystem::path& path) {
  struct statvfs info {};
  int result = statvfs(path.empty() ? "." : path.c_str(), &info);
  if (result != 0 && errno == ENOENT)  // an open file may have no name any more
    result = statvfs(path.has_parent_path() ? path.parent_path().c_str() : ".", &info);
  return result == 0 ? static_cast<uint64_t>(info.f_bavail) * info.f_frsize : 0;
}

}  // namespace sluice::io
