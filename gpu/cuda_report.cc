#include "gpu/cuda_report.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>

#include "base/arena.h"
#include "base/units.h"
#include "gpu/cuda_check.h"
#include "gpu/cuda_device.h"

namespace sluice::gpu {
namespace {

using namespace base;
using cuda::check;
using cuda::ignore;

constexpr int kRounds = 3;

struct FreeDevice {
  void operator()(std::byte* data) const { ignore(cudaFree(data)); }
};
struct FreeHost {
  void operator()(std::byte* data) const { ignore(cudaFreeHost(data)); }
};

class OwnedStream {
 public:
  OwnedStream() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~OwnedStream() { ignore(cudaStreamDestroy(stream)); }
  cudaStream_t stream = nullptr;
};

class OwnedEvent {
 public:
  OwnedEvent() { check(cudaEventCreate(&event), "cudaEventCreate"); }
  ~OwnedEvent() { ignore(cudaEventDestroy(event)); }
  cudaEvent_t event = nullptr;
};

// Page-locked host memory: an arena of ours that is registered, or CUDA's own.
class HostMemory {
 public:
  HostMemory(uint64_t bytes, bool own) {
    if (own) {
      void* memory = nullptr;
      check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
      owned_.reset(static_cast<std::byte*>(memory));
    } else {
      arena_ = Arena(bytes, "copy rates");
      check(cudaHostRegister(arena_.data(), bytes, cudaHostRegisterDefault), "cudaHostRegister");
    }
  }
  ~HostMemory() {
    if (!owned_) ignore(cudaHostUnregister(arena_.data()));
  }
  std::byte* data() const { return owned_ ? owned_.get() : arena_.data(); }

 private:
  std::unique_ptr<std::byte, FreeHost> owned_;
  Arena arena_;
};

class CopyTest {
 public:
  CopyTest(uint64_t bytes, uint64_t chunk, bool own_memory) : bytes_(bytes), chunk_(chunk), to_(bytes, own_memory), from_(bytes, own_memory) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, 2 * bytes), "cudaMalloc");
    device_.reset(static_cast<std::byte*>(memory));
  }

  CopyRates run() {
    CopyRates best;
    for (int round = 0; round < kRounds; ++round) {
      best.h2d = std::max(best.h2d, time(true, false).first);
      best.d2h = std::max(best.d2h, time(false, true).second);
      const auto [in, out] = time(true, true);
      best.h2d_beside = std::max(best.h2d_beside, in);
      best.d2h_beside = std::max(best.d2h_beside, out);
    }
    return best;
  }

 private:
  // Rates in and out.
  std::pair<double, double> time(bool in, bool out) {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    mark(in_begin_, in_);
    mark(out_begin_, out_);
    for (uint64_t at = 0; at < bytes_; at += chunk_) {
      const uint64_t part = std::min(chunk_, bytes_ - at);
      if (in) check(cudaMemcpyAsync(device_.get() + at, to_.data() + at, part, cudaMemcpyHostToDevice, in_.stream), "cudaMemcpyAsync");
      if (out)
        check(cudaMemcpyAsync(from_.data() + at, device_.get() + bytes_ + at, part, cudaMemcpyDeviceToHost, out_.stream),
              "cudaMemcpyAsync");
    }
    mark(in_end_, in_);
    mark(out_end_, out_);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return {in ? rate(in_begin_, in_end_) : 0, out ? rate(out_begin_, out_end_) : 0};
  }

  static void mark(const OwnedEvent& event, const OwnedStream& stream) { check(cudaEventRecord(event.event, stream.stream), "cudaEventRecord"); }

  double rate(const OwnedEvent& begin, const OwnedEvent& end) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin.event, end.event), "cudaEventElapsedTime");
    return milliseconds <= 0 ? 0 : static_cast<double>(bytes_) / (1e-3 * milliseconds);
  }

  const uint64_t bytes_, chunk_;
  const HostMemory to_, from_;
  std::unique_ptr<std::byte, FreeDevice> device_;
  OwnedStream in_, out_;
  OwnedEvent in_begin_, in_end_, out_begin_, out_end_;
};

GpuReport report_gpu(int index, int count) {
  GpuReport gpu{.index = index};
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  gpu.name = properties.name;
  gpu.major = properties.major;
  gpu.minor = properties.minor;
  char bus_id[32] = {};
  check(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), index), "cudaDeviceGetPCIBusId");
  gpu.bus_id = bus_id;
  for (int other = 0; other < count; ++other) {
    int reaches = 0;
    if (other != index) check(cudaDeviceCanAccessPeer(&reaches, index, other), "cudaDeviceCanAccessPeer");
    if (reaches != 0) gpu.peers.push_back(other);
  }
  check(cudaSetDevice(index), "cudaSetDevice");
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  gpu.free = free;
  gpu.total = total;
  gpu.huge_pages = measure_copies(index, 256_MiB, 256_MiB, false);
  gpu.cuda_memory = measure_copies(index, 256_MiB, 256_MiB, true);
  gpu.link = read_pci_link(gpu.bus_id);
  return gpu;
}

}  // namespace

CopyRates measure_copies(int index, uint64_t bytes, uint64_t chunk, bool own_memory) {
  check(cudaSetDevice(index), "cudaSetDevice");
  return CopyTest(bytes, chunk, own_memory).run();
}

uint64_t free_cuda_memory(int index) {
  if (!can_use_cuda(index).usable) return 0;
  size_t free = 0, total = 0;
  check(cudaSetDevice(index), "cudaSetDevice");
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

CudaReport report_cuda() {
  CudaReport report{.built = true};
  ignore(cudaDriverGetVersion(&report.driver));
  ignore(cudaRuntimeGetVersion(&report.runtime));
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    ignore(error);
    report.error = fmt::format("{} ({})", cudaGetErrorName(error), cudaGetErrorString(error));
    return report;
  }
  for (int index = 0; index < count; ++index) {
    try {
      report.gpus.push_back(report_gpu(index, count));
    } catch (const base::Error& failure) {
      report.gpus.push_back({.index = index, .error = failure.what()});
    }
  }
  return report;
}

}  // namespace sluice::gpu
