// What the machine's GPUs are and how fast they copy; for doctor and gpu-check. In target sluice_gpu_cuda, with or without CUDA.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpu/pci_link.h"

namespace sluice::gpu {

struct CopyRates {  // bytes per second, between the device and registered host memory
  double h2d = 0, d2h = 0;
  double h2d_beside = 0, d2h_beside = 0;  // both ways at once
};

struct GpuReport {
  int index = 0;
  std::string name, bus_id;
  int major = 0, minor = 0;  // compute capability
  uint64_t total = 0, free = 0;
  std::optional<PciLink> link;  // read right after the copies, while it is awake
  std::vector<int> peers;       // devices whose memory it can reach
  std::optional<CopyRates> huge_pages, cuda_memory;  // cudaHostRegister of our arenas; memory that CUDA allocated itself
  std::string error;            // what could not be found out
};

struct CudaReport {
  bool built = false;  // this program contains the CUDA device
  int driver = 0;      // newest CUDA that the driver runs, as 13000; 0: no driver
  int runtime = 0;     // CUDA that this program uses
  std::string error;   // why there are no GPUs
  std::vector<GpuReport> gpus;
};

// About a second for each GPU, and 512 MiB of memory on both sides. Leaves a context on each of them: for doctor, not for a run.
CudaReport report_cuda();

// Bytes that are free on one GPU; 0: it cannot be used. Touches no other.
uint64_t free_cuda_memory(int index = 0);

// Between the current device and `bytes` of a registered arena, in copies of `chunk` bytes, one way at a time and both at once.
// Error(...) of the CUDA device.
CopyRates measure_copies(int index, uint64_t bytes, uint64_t chunk, bool own_memory);

}  // namespace sluice::gpu
