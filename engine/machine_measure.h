// How fast this machine is, in a few seconds: disk, DRAM, Adam, copies, and the model's own layer and head, on the emulated device or a GPU.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/hf_config.h"
#include "gpu/device.h"
#include "offload/layout.h"
#include "offload/machine.h"

namespace sluice::engine {

struct MeasureOptions {
  std::vector<std::filesystem::path> directories;  // one on each drive of the store; none: the disk is left unknown
  HfConfig config;                                 // of the model whose shapes are computed
  offload::Schema schema = offload::Schema::bf16;
  uint64_t micro_batch = 1, sequence = 512;
  int64_t loss_chunk = 512;
  std::string gpu;             // CUDA: which device this is (gpu::identify_cuda); empty: the emulated one
  bool deterministic = true;   // CUDA: the kernels that a run takes
  int compute_threads = 0, optimizer_threads = 0;  // 0: all that this process may use
  double seconds = 0.3;                            // of each measurement, over all its rounds
};

// Measured with nothing else running; a run that shares the machine is slower. The disk's rates are those of all drives together, a short
// burst: a drive's cache may flatter its writes. Memory sizes are what is free now less a margin. Rates are medians of a few rounds; where
// these disagree, or others used the processors meanwhile, Machine::busy says so. A device whose memory the host cannot address has links,
// memory and an enqueue cost of its own, and takes none of the host's cores. Errors: disk, host_memory; of a GPU config, device_memory.
offload::Machine measure_machine(const MeasureOptions& options);
offload::Machine measure_machine(const MeasureOptions& options, gpu::Device& device);

// What is known of this machine with the emulated device without measuring: its name, how work there shares the cores (everything
// runs on them; a copy is one thread), memory that is free.
void describe_emulated(offload::Machine& machine, unsigned cores);
std::string processor_name();  // "unknown processor" where the system does not say

// What the measured rates depend on: processor, cores, GPU and its driver, file systems, the shapes computed, and what this build understands by them. Equal
// keys may share a profile.
std::string machine_key(const MeasureOptions& options);

}  // namespace sluice::engine
