#include "apps/doctor_gpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.h"

namespace sluice::apps {
namespace {

using base::format_bytes;
using gpu::GpuReport;
using Status = Finding::Status;

constexpr double kGoodShare = 0.6;      // of a link's rate: what copies reach on a machine in order
constexpr double kGoodHugePages = 0.9;  // of the rate of CUDA's own memory
constexpr int kOldest = 8;              // major compute capability

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string rate_text(double bytes_per_s) { return fmt::format("{:.1f} GB/s", bytes_per_s / 1e9); }

Finding driver_finding(const gpu::CudaReport& report, const std::string& kernel_driver) {
  Finding finding{.section = "GPU", .name = "NVIDIA driver", .value = kernel_driver.empty() ? "none" : kernel_driver};
  if (report.driver != 0) finding.value += fmt::format("; runs CUDA up to {}", version_text(report.driver));
  finding.numbers = {{"gpus", static_cast<double>(report.gpus.size())}};
  if (kernel_driver.empty() && report.driver == 0) {
    finding.status = Status::note;
    finding.meaning = "Runs use the emulated device, on the CPU.";
    finding.fix = "for an NVIDIA GPU, install its driver (580 or newer)";
  } else if (!report.built) {
    finding.status = Status::note;
    finding.meaning = "Whether a GPU can be used is not known: " + report.error + ".";
  } else if (report.driver / 1000 < report.runtime / 1000) {
    finding.status = Status::warning;
    finding.meaning = fmt::format("This program uses CUDA {}, which the driver is too old for: GPUs cannot be used.",
                                  version_text(report.runtime));
    finding.fix = "install driver 580 or newer; on data-centre GPUs the package cuda-compat-13-0 does too";
  } else if (report.gpus.empty()) {
    finding.status = Status::warning;
    finding.meaning = fmt::format("CUDA sees no GPU: {}.", report.error.empty() ? "none is visible" : report.error);
    finding.fix = "see nvidia-smi and dmesg; in a container, start it with --gpus all; check CUDA_VISIBLE_DEVICES";
  }
  return finding;
}

Finding runtime_finding(const gpu::CudaReport& report) {
  Finding finding{.section = "GPU", .name = "CUDA"};
  if (!report.built) {
    finding.status = Status::note;
    finding.value = "not in this program";
    finding.meaning = "machine.device \"cuda\" is refused.";
    finding.fix = report.error;
  } else {
    finding.value = version_text(report.runtime);
  }
  return finding;
}

Finding device_finding(const GpuReport& gpu, const std::string& section) {
  Finding finding{.section = section,
                  .name = "device",
                  .value = fmt::format("{}, compute {}.{}, {} free of {}", gpu.name, gpu.major, gpu.minor, format_bytes(gpu.free),
                                       format_bytes(gpu.total)),
                  .meaning = "memory.gpu \"auto\" takes nine tenths of what is free.",
                  .numbers = {{"free_bytes", static_cast<double>(gpu.free)},
                              {"total_bytes", static_cast<double>(gpu.total)},
                              {"compute_capability", gpu.major + 0.1 * gpu.minor}}};
  if (gpu.major < kOldest) {
    finding.status = Status::warning;
    finding.meaning = fmt::format("Compute capability {}.0 or newer is needed (bf16, flash attention): it cannot be used.", kOldest);
    finding.fix = "use a GPU from Ampere on, or machine.device \"cpu\"";
  } else if (gpu.free < gpu.total / 2) {
    finding.status = Status::note;
    finding.meaning = "Half of its memory or more is taken by others.";
    finding.fix = "nvidia-smi shows by whom";
  }
  return finding;
}

Finding link_finding(const GpuReport& gpu, const std::string& section) {
  Finding finding{.section = section, .name = "PCIe"};
  if (!gpu.link) {
    finding.status = Status::note;
    finding.value = "not shown by the kernel";
    return finding;
  }
  const gpu::PciLink& link = *gpu.link;
  finding.value = fmt::format("generation {}, {} lanes ({} one way){}", link.generation, link.width, rate_text(link.bytes_per_s()),
                              link.numa_node < 0 ? "" : fmt::format(", NUMA node {}", link.numa_node));
  finding.numbers = {{"generation", link.generation}, {"lanes", link.width}, {"bytes_per_s", link.bytes_per_s()}};
  if (link.bytes_per_s() < link.max_bytes_per_s()) {
    finding.status = Status::warning;
    finding.meaning = fmt::format("The GPU could do generation {} with {} lanes: weights and gradients cross more slowly.",
                                  link.max_generation, link.max_width);
    finding.fix = "another slot, the board's bifurcation and link speed settings, or a riser in between";
  }
  return finding;
}

std::vector<Finding> copy_findings(const GpuReport& gpu, const std::string& section) {
  if (!gpu.huge_pages || !gpu.cuda_memory) return {};
  const gpu::CopyRates &ours = *gpu.huge_pages, &theirs = *gpu.cuda_memory;
  Finding rate{.section = section,
               .name = "copies",
               .value = fmt::format("{} in, {} out; both at once {} and {}", rate_text(ours.h2d), rate_text(ours.d2h),
                                    rate_text(ours.h2d_beside), rate_text(ours.d2h_beside)),
               .meaning = "What a step can stream between RAM and the GPU.",
               .numbers = {{"h2d_bytes_per_s", ours.h2d},
                           {"d2h_bytes_per_s", ours.d2h},
                           {"h2d_beside_bytes_per_s", ours.h2d_beside},
                           {"d2h_beside_bytes_per_s", ours.d2h_beside}}};
  if (gpu.link && std::min(ours.h2d, ours.d2h) < kGoodShare * gpu.link->bytes_per_s()) {
    rate.status = Status::warning;
    rate.meaning = fmt::format("Less than {:.0f} % of what the link carries.", 100 * kGoodShare);
    rate.fix = "bind the process to the GPU's NUMA node (numactl --cpunodebind --membind); see what else uses the link";
  }
  Finding pages{.section = section,
                .name = "huge pages",
                .value = fmt::format("registered arenas {}, memory of CUDA's own {}", rate_text(ours.h2d), rate_text(theirs.h2d)),
                .meaning = "Arenas on huge pages, registered with CUDA, copy at full rate.",
                .numbers = {{"registered_bytes_per_s", ours.h2d}, {"cuda_bytes_per_s", theirs.h2d}}};
  if (ours.h2d < kGoodHugePages * theirs.h2d || ours.d2h < kGoodHugePages * theirs.d2h) {
    pages.status = Status::warning;
    pages.meaning = "Arenas copy more slowly than memory that CUDA allocates itself.";
    pages.fix = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled; in a virtual machine, back its memory by huge pages";
  }
  return {rate, pages};
}

Finding peer_finding(const GpuReport& gpu, const std::string& section) {
  Finding finding{.section = section, .name = "peer access"};
  if (gpu.peers.empty()) {
    finding.status = Status::note;
    finding.value = "none";
    finding.meaning = "Its traffic with other GPUs goes through RAM.";
    finding.fix = "only data-centre and professional GPUs have it; in a virtual machine, ACS or the hypervisor may forbid it";
  } else {
    finding.value = fmt::format("to GPU {}", fmt::join(gpu.peers, ", "));
  }
  return finding;
}

}  // namespace

std::vector<Finding> gpu_findings(const gpu::CudaReport& report, const std::string& kernel_driver) {
  std::vector<Finding> findings = {driver_finding(report, kernel_driver), runtime_finding(report)};
  for (const GpuReport& gpu : report.gpus) {
    const std::string section = fmt::format("GPU {}", gpu.index);
    if (!gpu.error.empty()) {
      findings.push_back({.section = section,
                          .name = "device",
                          .status = Status::warning,
                          .value = gpu.error,
                          .meaning = "It cannot be used.",
                          .fix = "see nvidia-smi and dmesg"});
      continue;
    }
    findings.push_back(device_finding(gpu, section));
    findings.push_back(link_finding(gpu, section));
    const std::vector<Finding> copies = copy_findings(gpu, section);
    findings.insert(findings.end(), copies.begin(), copies.end());
    if (report.gpus.size() > 1) findings.push_back(peer_finding(gpu, section));
  }
  return findings;
}

}  // namespace sluice::apps
