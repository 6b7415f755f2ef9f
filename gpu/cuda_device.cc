#include "gpu/cuda_device.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdlib>

#include "base/units.h"
#include "gpu/cuda_check.h"
#include "gpu/cuda_kernels.h"
#include "gpu/cuda_memory.h"
#include "gpu/cuda_stream.h"

namespace sluice::gpu {
namespace {

using base::ErrorKind;
using base::format_bytes;
namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr int kOldest = 8;  // major compute capability: bf16 and flash attention begin there
constexpr auto kAggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

// Settings of the whole process; before the first matrix product, which reads the environment once.
void set_numerics(bool deterministic) {
  if (deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // else every at::empty is filled
  context.setDeterministicCuDNN(deterministic);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuBLAS(false);
  context.setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false, /*allow_splitk=*/true);
  context.setAllowFP16ReductionCuBLAS(/*allow_reduced_precision=*/false, /*allow_splitk=*/true);
}

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaOptions& options, const cudaDeviceProp& properties, uint64_t limit, uint64_t total)
      : shared_(std::make_shared<cuda::Shared>(options, limit, total)),
        name_(fmt::format("{}, compute {}.{}, {} of {}", properties.name, properties.major, properties.minor, format_bytes(limit),
                          format_bytes(total))) {
    allocator::resetPeakStats(index_of());
  }

  // What is still cached goes back, so that the next device of the process finds the memory. cuBLAS's workspaces are LibTorch's
  // tensors too, kept for the process: the next device is to count them as its own.
  ~CudaDevice() override {
    cuda::quietly([this] {
      at::cuda::clearCublasWorkspaces();
      allocator::setMemoryFraction(1.0, index_of());
      allocator::emptyCache();
    });
  }

  std::string describe() const override { return name_; }
  DeviceKind kind() const override { return DeviceKind::cuda; }
  int index() const override { return shared_->options.index; }
  bool host_addressable() const override { return false; }

  std::unique_ptr<Stream> create_stream(const std::string& name) override {
    return made<cuda::CudaStream>(name);
  }
  std::unique_ptr<DeviceBuffer> allocate(size_t bytes, const std::string& purpose) override {
    return made<cuda::CudaBuffer>(bytes, purpose);
  }
  std::unique_ptr<HostRegistration> register_host(std::span<std::byte> range) override {
    return made<cuda::CudaRegistration>(range);
  }
  base::Budget& budget() override { return *shared_->budget; }

  MemoryStats memory() const override {
    const auto tensors = allocator::getDeviceStats(index_of());
    MemoryStats stats;
    stats.limit = shared_->budget->limit();
    stats.arenas = shared_->arenas;
    stats.temporaries = static_cast<uint64_t>(tensors.allocated_bytes[kAggregate].current);
    stats.temporaries_peak = static_cast<uint64_t>(tensors.allocated_bytes[kAggregate].peak);
    stats.held_peak = static_cast<uint64_t>(tensors.reserved_bytes[kAggregate].peak);
    size_t free = 0, total = 0;
    cuda::use_device(shared_->options.index);
    cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    const uint64_t ours = stats.arenas + static_cast<uint64_t>(tensors.reserved_bytes[kAggregate].current), used = total - free;
    stats.runtime = used > ours ? used - ours : 0;
    stats.peak = shared_->budget->peak() + stats.temporaries_peak;
    return stats;
  }

  void reset_peak() override {
    shared_->budget->reset_peak();
    allocator::resetPeakStats(index_of());
  }

  void poison(std::byte* data, size_t bytes) override {
    if (!shared_->options.poison) return;
    cuda::use_device(shared_->options.index);
    cuda::check(cudaMemset(data, 0xff, bytes), "cudaMemset");
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

 private:
  template <class T, class... Arguments>
  std::unique_ptr<T> made(const Arguments&... arguments) const {
    std::unique_ptr<T> object;
    cuda::translate_errors([&] { object = std::make_unique<T>(shared_, arguments...); });
    return object;
  }
  c10::DeviceIndex index_of() const { return static_cast<c10::DeviceIndex>(shared_->options.index); }

  const std::shared_ptr<cuda::Shared> shared_;
  const std::string name_;
};

}  // namespace

CudaUse can_use_cuda(int index) {
  int count = 0, driver = 0;
  cuda::ignore(cudaDriverGetVersion(&driver));
  if (driver == 0) return {false, "no NVIDIA driver is loaded"};  // cudaGetDeviceCount calls that too old
  const cudaError_t error = cudaGetDeviceCount(&count);
  cuda::ignore(error);
  if (error != cudaSuccess) return {false, fmt::format("{} ({})", cudaGetErrorName(error), cudaGetErrorString(error))};
  if (index >= count) return {false, fmt::format("device {} of {}", index, count)};
  cudaDeviceProp properties;
  cuda::check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  if (properties.major < kOldest)
    return {false, fmt::format("{} has compute capability {}.{}; {}.0 is needed", properties.name, properties.major, properties.minor,
                               kOldest)};
  return {true, properties.name};
}

std::string identify_cuda(int index) {
  int driver = 0;
  cuda::check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cudaDeviceProp properties;
  cuda::check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return fmt::format("{}, {}, driver for CUDA {}.{}", properties.name, format_bytes(properties.totalGlobalMem), driver / 1000, driver % 1000 / 10);
}

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  const CudaUse use = can_use_cuda(options.index);
  if (!use.usable)
    base::fail(ErrorKind::config, "machine.device is \"cuda\", and no CUDA device can be used: {}. See `sluice doctor`, or take \"cpu\"",
               use.reason);
  cuda::check_environment(options.deterministic);
  set_numerics(options.deterministic);
  uint64_t free = 0, total = 0;
  cudaDeviceProp properties;
  cuda::translate_errors([&] {
    at::globalContext().lazyInitDevice(at::kCUDA);
    cuda::use_device(options.index);
    cuda::check(cuda::load_kernels(), "cudaFuncGetAttributes");
    cuda::check(cudaGetDeviceProperties(&properties, options.index), "cudaGetDeviceProperties");
    size_t free_bytes = 0, total_bytes = 0;
    cuda::check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    free = free_bytes;
    total = total_bytes;
  });
  // The context and the kernels are loaded, so what is free is free for us.
  const uint64_t limit = options.memory != 0 ? options.memory : free / 10 * 9;
  if (limit > free)
    base::fail(ErrorKind::device_memory, "memory.gpu is {}, but {} has only {} of {} free. Lower it, or end what else uses the GPU",
               format_bytes(limit), use.reason, format_bytes(free), format_bytes(total));
  return std::make_unique<CudaDevice>(options, properties, limit, total);
}

}  // namespace sluice::gpu
