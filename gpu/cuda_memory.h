// Device memory and registered host memory of a CUDA device. Internal to it.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/cuda_device.h"
#include "gpu/cuda_event.h"
#include "gpu/host_registry.h"

namespace sluice::gpu::cuda {

// What streams, buffers and registrations of one device share; it outlives them. Thread-safe.
struct Shared {
  Shared(const CudaOptions& options, uint64_t limit, uint64_t total);
  // LibTorch's caching allocator may hold what the arenas leave of the budget, no more.
  void limit_temporaries();

  const CudaOptions options;
  const uint64_t total;  // bytes of the device
  const std::shared_ptr<base::Budget> budget;
  const std::shared_ptr<EventPool> events;
  HostRegistry hosts;
  std::atomic<uint64_t> arenas{0};  // bytes of the buffers alive

 private:
  std::mutex mutex_;  // one limit_temporaries at a time
};

// One cudaMalloc. The destructor waits for the device, so that no work is left that uses the memory: buffers live for a run, not for a step.
class CudaBuffer final : public DeviceBuffer {
 public:
  CudaBuffer(std::shared_ptr<Shared> shared, size_t bytes, const std::string& purpose);
  ~CudaBuffer() override;

 private:
  const std::shared_ptr<Shared> shared_;
  base::Reservation charge_;
};

// Page-locks a range in pieces: one call on tens of gigabytes holds the process's memory map for seconds. The destructor waits for
// the device, so that no copy is left that uses the memory.
class CudaRegistration final : public HostRegistration {
 public:
  CudaRegistration(std::shared_ptr<Shared> shared, std::span<std::byte> range);
  ~CudaRegistration() override;

 private:
  void release() noexcept;
  const std::shared_ptr<Shared> shared_;
  std::vector<std::byte*> pieces_;
};

}  // namespace sluice::gpu::cuda
