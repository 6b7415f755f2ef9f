// The built-in machines. All figures are assumed: what such a machine is known to reach, not its peak.
#include "base/units.h"
#include "configs/machine_profile.h"

namespace sluice::configs {
namespace {

using offload::Machine;
using namespace base;  // NOLINT: the byte literals

// One consumer NVMe drive: reads, sustained writes, and both together.
Machine with_one_drive(std::string name) {
  Machine m;
  m.name = std::move(name);
  m.assumed = true;
  m.disk_read = 6.5e9;
  m.disk_write = 3.0e9;
  m.disk_mixed = 7.0e9;
  m.enqueue = 1e-5;
  return m;
}

// PCIe 4 x16, two channels of DDR5; between cards through host memory, so half of the link; 150 of 165 TFLOP/s in bf16.
Machine rtx4090(std::string name, uint64_t host) {
  Machine m = with_one_drive(std::move(name));
  m.h2d = m.d2h = 25e9;
  m.net = 12e9;
  m.dram = 65e9;
  m.adam = 2.2e9;
  m.compute = 150e12;
  m.device_memory_rate = 0.9e12;
  m.gpu_bytes = 22_GiB;
  m.host_bytes = host;
  return m;
}

// PCIe 4 x16, two channels of DDR4; 65 of 71 TFLOP/s.
Machine rtx3090() {
  Machine m = rtx4090("rtx3090-64g", 52_GiB);
  m.dram = 40e9;
  m.adam = 1.35e9;
  m.compute = 65e12;
  m.device_memory_rate = 0.84e12;
  return m;
}

// Server boards: eight channels of memory, of which one job gets some 150 GB/s.
Machine server(std::string name, double link, double compute, double memory_rate, uint64_t gpu,
               uint64_t host) {
  Machine m = with_one_drive(std::move(name));
  m.h2d = m.d2h = link;
  m.net = 200e9;  // NVLink, of 300 (A100) or 450 (H100) one way
  m.dram = 150e9;
  m.adam = 5e9;
  m.compute = compute;
  m.device_memory_rate = memory_rate;
  m.gpu_bytes = gpu;
  m.host_bytes = host;
  return m;
}

}  // namespace

std::span<const Machine> builtin_machines() {
  static const std::vector<Machine> machines = {
      rtx4090("rtx4090-64g", 52_GiB),
      rtx4090("rtx4090-128g", 112_GiB),
      rtx3090(),
      server("a100-40g", 25e9, 220e12, 1.4e12, 37_GiB, 112_GiB),
      server("h100", 53e9, 600e12, 3.0e12, 74_GiB, 224_GiB),
      server("h200", 53e9, 650e12, 4.3e12, 130_GiB, 105_GiB),
  };
  return machines;
}

}  // namespace sluice::configs
