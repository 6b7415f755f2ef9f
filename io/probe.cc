#include "io/probe.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "io/disk_rate.h"
#include "io/file.h"
#include "io/page_cache.h"
#include "io/transfer.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// mountinfo writes space, tab, newline and backslash as three octal digits.
std::string unescape(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      result += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

bool holds(const fs::path& mount_point, const fs::path& path) {
  const auto [end, rest] = std::mismatch(mount_point.begin(), mount_point.end(), path.begin(), path.end());
  return end == mount_point.end() || (end->empty() && std::next(end) == mount_point.end());
}

Locality locality_of(const std::string& type) {
  constexpr const char* kMemory[] = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"};
  constexpr const char* kNetwork[] = {"nfs",      "nfs4",   "cifs",      "smb3",  "smbfs", "ceph", "lustre",
                                      "gpfs",     "beegfs", "glusterfs", "ocfs2", "gfs2",  "afs",  "9p",
                                      "virtiofs", "pvfs2",  "wekafs",    "daos",  "panfs"};
  if (std::find(std::begin(kMemory), std::end(kMemory), type) != std::end(kMemory)) return Locality::memory;
  if (std::find(std::begin(kNetwork), std::end(kNetwork), type) != std::end(kNetwork))
    return Locality::network;
  return type.starts_with("fuse.") ? Locality::network : Locality::local;  // sshfs, s3fs, gcsfuse, ...
}

// "always [madvise] never": the one in brackets.
std::string chosen(const std::string& text) {
  const size_t open = text.find('['), close = text.find(']');
  return open == std::string::npos || close == std::string::npos ? ""
                                                                 : text.substr(open + 1, close - open - 1);
}

uint64_t read_number(const fs::path& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  return in >> value ? value : 0;
}

void measure(DirectoryReport& report, const RateOptions& options) {
  constexpr uint64_t kLeast = 8 << 20;
  const uint64_t bytes =
      std::min(options.file_bytes, report.file_system.free_bytes / 10) / (4 << 20) * (4 << 20);
  if (options.seconds <= 0) return;
  if (bytes < kLeast) {
    report.rate_note = "too little free space to measure";
    return;
  }
  try {
    const File file = temporary_file(report.path, bytes);
    report.rate = measure_rate(file, options.seconds);
    report.rate_note = file.direct() ? "short burst, not flushed: a drive's cache may flatter it"
                                     : "through the page cache: not the drive's rate";
  } catch (const base::Error& error) {
    report.rate_note = error.what();
  }
}

}  // namespace

FileSystemInfo find_mount(const std::string& mountinfo, const fs::path& path) {
  FileSystemInfo best;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(
           lines, line);) {  // id parent major:minor root MOUNT_POINT options [optional]... - TYPE source ...
    std::istringstream fields(line);
    std::string word, mount_point, type;
    for (int i = 0; i < 4; ++i) fields >> word;
    fields >> mount_point;
    while (fields >> word && word != "-") {
    }
    if (!(fields >> type)) continue;
    mount_point = unescape(mount_point);
    // Of equally long ones the last hides the others.
    if (holds(mount_point, path) && mount_point.size() >= best.mount_point.size()) {
      best.mount_point = mount_point;
      best.type = type;
    }
  }
  best.locality = locality_of(best.type);
  return best;
}

DirectoryReport probe_directory(const fs::path& directory, const RateOptions& options) {
  DirectoryReport report;
  std::error_code error;
  report.path = fs::canonical(directory, error);
  if (error) {
    report.path = directory;
    report.error = error.message();
    return report;
  }
  report.file_system = find_mount(read_text("/proc/self/mountinfo"), report.path);
  if (struct statvfs info{}; statvfs(report.path.c_str(), &info) == 0) {
    report.file_system.total_bytes = static_cast<uint64_t>(info.f_blocks) * info.f_frsize;
    report.file_system.free_bytes = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  }
  try {
    const File file = temporary_file(report.path, kAlignment);
    report.direct = file.direct();
    report.direct_alignment = file.direct_alignment();
    report.drops_from_cache = !file.direct() && can_drop_from_cache(file);
    file.write_at(0, std::vector<std::byte>(kAlignment));
    if (struct stat info{}; fstat(file.fd(), &info) == 0) {
      const uint64_t cap = device_byte_cap(info.st_dev);
      report.in_flight_cap = cap == std::numeric_limits<uint64_t>::max() ? 0 : cap;
    }
  } catch (const base::Error& failure) {
    report.error = failure.what();
    return report;
  }
  measure(report, options);
  return report;
}

MemlockReport probe_memlock() {
  MemlockReport report;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    if (limit.rlim_cur != RLIM_INFINITY) report.soft = limit.rlim_cur;
    if (limit.rlim_max != RLIM_INFINITY) report.hard = limit.rlim_max;
  }
  std::istringstream status(read_text("/proc/self/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("CapEff:"))
      report.privileged = (std::stoull(line.substr(7), nullptr, 16) >> CAP_IPC_LOCK & 1) != 0;
  return report;
}

HugePagesReport probe_huge_pages() {
  const fs::path transparent = "/sys/kernel/mm/transparent_hugepage",
                 reserved = "/sys/kernel/mm/hugepages/hugepages-2048kB";
  return {.transparent = chosen(read_text(transparent / "enabled")),
          .defrag = chosen(read_text(transparent / "defrag")),
          .reserved = read_number(reserved / "nr_hugepages"),
          .reserved_free = read_number(reserved / "free_hugepages")};
}

}  // namespace sluice::io
