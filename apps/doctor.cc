#include "apps/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apps/doctor_finding.h"
#include "apps/doctor_gpu.h"
#include "base/arena.h"
#include "base/cgroup.h"
#include "base/error.h"
#include "base/topology.h"
#include "base/units.h"
#include "io/probe.h"

namespace sluice::apps {
namespace {

using base::format_bytes;
using Status = Finding::Status;

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown processor";
}

Finding vector_finding() {
  Finding finding{.section = "Processor", .name = "vector units"};
#if defined(__x86_64__)
  __builtin_cpu_init();
  std::vector<std::string> found;
  const auto add = [&found](bool has, const char* name) {
    if (has) found.emplace_back(name);
  };
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  add(avx2, "AVX2");
  add(avx512, "AVX-512");
  add(avx512 && __builtin_cpu_supports("avx512bf16"), "AVX-512 bf16");
  std::ifstream in("/proc/cpuinfo");
  const std::string info{std::istreambuf_iterator<char>(in), {}};
  add(info.find(" amx_bf16") != std::string::npos, "AMX bf16");
  finding.value = found.empty() ? "SSE2 only" : fmt::format("{}", fmt::join(found, ", "));
  finding.numbers = {{"avx2", avx2}, {"avx512", avx512}};
  finding.meaning =
      fmt::format("The optimizer runs on {} bits; every choice gives the same results.", avx512 ? 512
                                                                                         : avx2 ? 256
                                                                                                : 128);
  if (!avx2) {
    finding.status = Status::warning;
    finding.fix = "use a processor from after 2015, or a virtual machine type that passes AVX2 through";
  }
#else
  finding.value = "chosen at run time";
  finding.status = Status::note;
#endif
  return finding;
}

std::vector<Finding> processor_findings() {
  const base::Topology topology = base::detect_topology();
  const size_t nodes = topology.numa_nodes.size();
  Finding cores{
      .section = "Processor",
      .name = "cores",
      .value = fmt::format("{}: {} cores, {} threads usable, {} NUMA node{}", processor_name(),
                           topology.physical_cores, topology.cpus.size(), nodes, nodes == 1 ? "" : "s"),
      .numbers = {{"physical_cores", topology.physical_cores},
                  {"threads", topology.cpus.size()},
                  {"usable_cores", topology.usable_cores()},
                  {"numa_nodes", nodes}}};
  if (topology.cpu_quota) {
    cores.numbers["cpu_quota"] = *topology.cpu_quota;
    if (*topology.cpu_quota < topology.physical_cores) {
      cores.status = Status::warning;
      cores.meaning = fmt::format(
          "The control group grants {:.2f} CPUs: more threads than that are stopped now and then.",
          *topology.cpu_quota);
      cores.fix = "raise the container's CPU limit (docker --cpus, Kubernetes limits.cpu)";
    }
  }
  return {cores, vector_finding()};
}

std::vector<Finding> memory_findings() {
  const uint64_t available = base::available_host_memory();
  const base::CgroupLimits limits = base::read_cgroup_limits();
  Finding memory{.section = "Memory",
                 .name = "available",
                 .value = format_bytes(available),
                 .numbers = {{"available_bytes", static_cast<double>(available)}}};
  memory.meaning = "Pools, pinned tiles and the emulated device must fit in this.";
  if (limits.memory_limit) {
    memory.value += fmt::format(", of the control group's {}", format_bytes(*limits.memory_limit));
    memory.numbers["cgroup_limit_bytes"] = static_cast<double>(*limits.memory_limit);
    memory.status = Status::note;
    memory.fix = "more: raise the container's memory limit (docker --memory, Kubernetes limits.memory)";
  }

  const io::HugePagesReport pages = io::probe_huge_pages();
  Finding huge{.section = "Memory",
               .name = "huge pages",
               .value = pages.transparent.empty() ? "none" : "transparent: " + pages.transparent,
               .meaning = "Buffers ask for huge pages: several times less CPU time for each byte of I/O."};
  if (pages.transparent.empty() || pages.transparent == "never") {
    huge.status = Status::warning;
    huge.meaning =
        "Buffers get 4 KiB pages: I/O costs several times the CPU time, and may reach half the rate.";
    huge.fix = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled";
  }

  const io::MemlockReport lock = io::probe_memlock();
  const auto text = [](const std::optional<uint64_t>& limit) {
    return limit ? format_bytes(*limit) : std::string("unlimited");
  };
  Finding memlock{.section = "Memory",
                  .name = "locked memory",
                  .value = lock.privileged
                               ? "unlimited (CAP_IPC_LOCK)"
                               : fmt::format("{}, may be raised to {}", text(lock.soft), text(lock.hard)),
                  .meaning = "I/O buffers can be registered with io_uring."};
  if (lock.hard) memlock.numbers["hard_limit_bytes"] = static_cast<double>(*lock.hard);
  if (!lock.privileged && lock.hard) {
    memlock.status = Status::warning;
    memlock.meaning =
        "Buffers beyond this limit are not registered with io_uring: some 20 % more CPU time for I/O.";
    memlock.fix =
        "add '* - memlock unlimited' to /etc/security/limits.d/sluice.conf and log in again; docker: "
        "--ulimit memlock=-1";
  }
  return {memory, huge, memlock};
}

std::string kernel_driver() {
  std::ifstream module("/proc/driver/nvidia/version");
  std::string line;
  std::getline(module, line);
  return line;
}

std::vector<Finding> kernel_io_findings() {
  const io::UringStatus status = io::probe_uring();
  Finding finding{.section = "I/O", .name = "io_uring", .value = status.explanation()};
  finding.numbers = {{"errno", status.error}, {"io_uring_disabled", status.disabled}};
  if (status.usable()) {
    finding.meaning = "Disk transfers go through io_uring with registered buffers.";
  } else {
    finding.status = Status::warning;
    finding.meaning =
        "Disk transfers use threads with pread and pwrite: the same rate for large blocks, more CPU time.";
    finding.fix = status.disabled > 0 ? "sudo sysctl kernel.io_uring_disabled=0"
                                      : "in a container: --security-opt seccomp=unconfined, or a seccomp "
                                        "profile that allows io_uring_*";
  }
  return {finding};
}

std::vector<Finding> directory_findings(const std::filesystem::path& directory) {
  const io::DirectoryReport report = io::probe_directory(directory);
  const std::string section = "Directory " + report.path.string();
  if (!report.error.empty())
    return {{.section = section,
             .name = "writable",
             .status = Status::error,
             .value = report.error,
             .meaning = "No store can be put here.",
             .fix = "choose another directory, or see its owner, mode and mount options"}};
  const io::FileSystemInfo& fs = report.file_system;
  Finding kind{
      .section = section, .name = "file system", .value = fmt::format("{} at {}", fs.type, fs.mount_point)};
  if (fs.locality == io::Locality::network) {
    kind.status = Status::warning;
    kind.value += ", network or user-space";
    kind.meaning = "Slow for offloading, and what survives a crash depends on the server.";
    kind.fix = "put storage.paths on a local NVMe drive; run.dir may stay here";
  } else if (fs.locality == io::Locality::memory) {
    kind.status = Status::warning;
    kind.value += ", in memory";
    kind.meaning = "State here takes RAM and is gone after a reboot.";
    kind.fix = "put storage.paths on a drive, or use the cpu tier";
  } else if (fs.type == "btrfs" || fs.type == "zfs" || fs.type == "bcachefs" || fs.type == "overlay") {
    kind.status = Status::note;
    kind.meaning = "Copy-on-write: preallocation promises less here, and a full disk may show late.";
    kind.fix = "ext4 or xfs is better for storage.paths";
  }
  Finding space{.section = section,
                .name = "free space",
                .value = fmt::format("{} of {}", format_bytes(fs.free_bytes), format_bytes(fs.total_bytes)),
                .meaning = fmt::format("Room for the state of {:.1f} billion parameters (two slots of 12 "
                                       "bytes each), without checkpoints.",
                                       static_cast<double>(fs.free_bytes) / 24e9),
                .numbers = {{"free_bytes", static_cast<double>(fs.free_bytes)},
                            {"total_bytes", static_cast<double>(fs.total_bytes)}}};
  Finding direct{.section = section,
                 .name = "direct I/O",
                 .numbers = {{"alignment", static_cast<double>(report.direct_alignment)}}};
  if (report.direct) {
    direct.value = fmt::format("works, alignment {} bytes", report.direct_alignment);
  } else {
    direct.status = Status::warning;
    direct.value = "refused";
    direct.meaning =
        report.drops_from_cache ? "Transfers go through the page cache, which keeps nothing of them: several times the CPU time."
                                : "Transfers go through the page cache: several times the CPU time, and RAM for the cache.";
    direct.fix = "use ext4 or xfs on a local drive";
  }
  Finding rate{.section = section, .name = "rate", .meaning = report.rate_note};
  if (report.rate) {
    rate.value =
        fmt::format("read {:.2f} GB/s, write {:.2f} GB/s", report.rate->read / 1e9, report.rate->write / 1e9);
    rate.numbers = {{"read_bytes_per_s", report.rate->read}, {"write_bytes_per_s", report.rate->write}};
  } else {
    rate.status = Status::note;
    rate.value = "not measured";
  }
  return {kind, space, direct, rate};
}

const char* name_of(Finding::Status status) {
  switch (status) {
    case Finding::Status::ok:
      return "ok";
    case Finding::Status::note:
      return "note";
    case Finding::Status::warning:
      return "warning";
    case Finding::Status::error:
      return "error";
  }
  return "?";
}

void print_text(const std::vector<Finding>& findings) {
  std::string section;
  for (const Finding& finding : findings) {
    if (finding.section != section) fmt::print("{}{}\n", section.empty() ? "" : "\n", finding.section);
    section = finding.section;
    fmt::print("  {:<8} {:<18} {}\n", name_of(finding.status), finding.name, finding.value);
    if (!finding.meaning.empty()) fmt::print("  {:<8} {:<18} {}\n", "", "", finding.meaning);
    if (!finding.fix.empty()) fmt::print("  {:<8} {:<18} Fix: {}\n", "", "", finding.fix);
  }
}

void print_json(const std::vector<Finding>& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings)
    list.push_back({{"section", finding.section},
                    {"name", finding.name},
                    {"status", name_of(finding.status)},
                    {"value", finding.value},
                    {"numbers", finding.numbers},
                    {"meaning", finding.meaning},
                    {"fix", finding.fix}});
  fmt::print("{}\n", nlohmann::json{{"findings", list}}.dump(2, ' ', false,
                                                             nlohmann::json::error_handler_t::replace));
}

}  // namespace

int run_doctor(const DoctorOptions& options) {
  std::vector<Finding> findings;
  const auto append = [&findings](std::vector<Finding> more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  append(processor_findings());
  append(memory_findings());
  append(gpu_findings(gpu::report_cuda(), kernel_driver()));
  append(kernel_io_findings());
  bool usable = true;
  for (const std::filesystem::path& directory : options.dirs) {
    append(directory_findings(directory));
    for (const Finding& finding : findings) usable = usable && finding.status != Finding::Status::error;
  }
  if (options.json)
    print_json(findings);
  else
    print_text(findings);
  if (options.dirs.empty() && !options.json)
    fmt::print("\nNo directory was given: --dir D looks at D as a place for weights and optimizer state.\n");
  return usable ? 0 : static_cast<int>(base::ErrorKind::disk);
}

}  // namespace sluice::apps
