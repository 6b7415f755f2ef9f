// A CUDA GPU behind the Device contract: cudart for memory and copies, c10::cuda for streams and LibTorch's temporaries. Free of
// CUDA headers. In target sluice_gpu_cuda; built without a toolkit, make_cuda_device fails and says how to get it.
#pragma once
#include <memory>
#include <string>

#include "gpu/device.h"

namespace sluice::gpu {

inline constexpr uint64_t kCudaStreamBytes = 4 << 20;  // of the budget, for the copies of each stream: one gradient tile in bf16

struct CudaOptions {
  uint64_t memory = 0;        // budget in bytes for arenas and LibTorch's tensors together; 0: nine tenths of what is free
  int index = 0;              // of the device, as CUDA counts them
  bool deterministic = true;  // kernels that give the same bits in every run
  bool poison = false;        // tests: NaN in fresh memory and in copy targets until the copy runs
};

// Errors: config (not built, no device, driver too old), device_memory (memory is more than is free).
//
// LibTorch's settings of the process are set by this, for all its CUDA devices: deterministic kernels, no TF32, no sums in 16 bits. Its
// caching allocator is limited to what the arenas leave of the budget. Copies and kernels go to streams that nothing synchronises
// with but events; docs/gpu.md goes through every CUDA call.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options);

// Is a CUDA device there that make_cuda_device would take? Otherwise why not, in one line.
struct CudaUse {
  bool usable = false;
  std::string reason;
};
CudaUse can_use_cuda(int index = 0);

// What its rates depend on, for people too: "NVIDIA H200, 139.8 GiB, driver for CUDA 13.0". Of a device that can be used; Error(config).
std::string identify_cuda(int index = 0);

}  // namespace sluice::gpu
