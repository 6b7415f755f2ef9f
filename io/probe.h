// What this machine's disks and kernel offer, for `sluice doctor`. Nothing here throws for a finding: it is
// reported.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/uring_queue.h"

namespace sluice::io {

enum class Locality { local, network, memory };

struct FileSystemInfo {
  std::string type;  // "ext4", "nfs4", "fuse.sshfs", ...
  std::string mount_point;
  Locality locality = Locality::local;
  uint64_t total_bytes = 0, free_bytes = 0;  // free: for an unprivileged process
};

struct DiskRate {  // bytes per second, unflushed
  double read = 0, write = 0;
};

struct DirectoryReport {
  std::filesystem::path path;
  std::string error;  // why files cannot be written here; empty: they can
  FileSystemInfo file_system;
  bool direct = false;          // O_DIRECT works
  size_t direct_alignment = 0;  // what it asks for, bytes
  bool drops_from_cache = false;  // where it does not: what goes through the page cache does not stay there (page_cache.h)
  uint64_t in_flight_cap =
      0;  // bytes that the block device queues before submitting blocks, halved; 0: no limit known
  std::optional<DiskRate> rate;
  std::string rate_note;  // why there is no rate, or what it does not show
};

struct RateOptions {
  double seconds = 0.25;            // for each direction; 0: no rate
  uint64_t file_bytes = 256 << 20;  // of the temporary file, at most a tenth of the free space
};

// Writes, reads and deletes one temporary file in the directory.
DirectoryReport probe_directory(const std::filesystem::path& directory, const RateOptions& options = {});

struct MemlockReport {
  std::optional<uint64_t> soft, hard;  // bytes; none: unlimited
  bool privileged = false;             // CAP_IPC_LOCK: no limit applies
};
MemlockReport probe_memlock();

struct HugePagesReport {
  std::string transparent;  // "always", "madvise", "never"; empty: the kernel has none
  std::string defrag;
  uint64_t reserved = 0, reserved_free = 0;  // hugetlb pages of 2 MiB
};
HugePagesReport probe_huge_pages();

// From the text of /proc/self/mountinfo: type and mount point of what holds the (absolute) path.
FileSystemInfo find_mount(const std::string& mountinfo, const std::filesystem::path& path);

}  // namespace sluice::io
