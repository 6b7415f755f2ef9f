#include "gpu/cuda_memory.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>

#include "base/units.h"
#include "gpu/cuda_check.h"

namespace sluice::gpu::cuda {

using namespace base;

namespace {
constexpr size_t kPiece = 1_GiB;
}

Shared::Shared(const CudaOptions& o, uint64_t limit, uint64_t total_bytes)
    : options(o),
      total(total_bytes),
      budget(std::make_shared<Budget>("device", limit, ErrorKind::device_memory)),
      events(std::make_shared<EventPool>(o.index)) {
  limit_temporaries();
}

void Shared::limit_temporaries() {
  const std::lock_guard lock(mutex_);
  const uint64_t used = std::min<uint64_t>(arenas, budget->limit());
  const double share = static_cast<double>(budget->limit() - used) / static_cast<double>(total);
  c10::cuda::CUDACachingAllocator::setMemoryFraction(std::min(1.0, share), static_cast<c10::DeviceIndex>(options.index));
}

CudaBuffer::CudaBuffer(std::shared_ptr<Shared> shared, size_t bytes, const std::string& purpose)
    : shared_(std::move(shared)), charge_(shared_->budget->reserve(purpose, bytes)) {
  use_device(shared_->options.index);
  void* data = nullptr;
  // The caching allocator may sit on freed blocks that this needs.
  cudaError_t error = cudaMalloc(&data, std::max<size_t>(bytes, 1));
  if (error == cudaErrorMemoryAllocation) {
    ignore(error);
    c10::cuda::CUDACachingAllocator::emptyCache();
    error = cudaMalloc(&data, std::max<size_t>(bytes, 1));
  }
  check(error, "cudaMalloc", fmt::format("{} for {}", format_bytes(bytes), purpose));
  data_ = static_cast<std::byte*>(data);
  size_ = bytes;
  shared_->arenas += bytes;
  shared_->limit_temporaries();
  if (shared_->options.poison) {
    // On the legacy stream, which LibTorch's and our streams do not wait for: so the host does.
    check(cudaMemset(data_, 0xff, size_), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
}

CudaBuffer::~CudaBuffer() {
  use_device(shared_->options.index);
  ignore(cudaDeviceSynchronize());  // cudaFree may wait, and need not
  ignore(cudaFree(data_));
  shared_->arenas -= size_;
  charge_.release();
  quietly([this] { shared_->limit_temporaries(); });
}

CudaRegistration::CudaRegistration(std::shared_ptr<Shared> shared, std::span<std::byte> range) : shared_(std::move(shared)) {
  use_device(shared_->options.index);
  for (size_t done = 0; done < range.size(); done += kPiece) {
    const std::span<std::byte> piece = range.subspan(done, std::min(kPiece, range.size() - done));
    const cudaError_t error = cudaHostRegister(piece.data(), piece.size(), cudaHostRegisterDefault);
    if (error != cudaSuccess) {
      ignore(error);
      release();
      if (is_lost(error)) check(error, "cudaHostRegister");
      fail(error == cudaErrorHostMemoryAlreadyRegistered ? ErrorKind::bug : ErrorKind::host_memory,
           "cudaHostRegister: {} of host memory could not be page-locked for the GPU, after {} were ({}). Lower memory.host or "
           "execution.pools, or raise the container's memory limit",
           format_bytes(range.size()), format_bytes(done), cudaGetErrorName(error));
    }
    pieces_.push_back(piece.data());
    shared_->hosts.add(piece);
  }
}

CudaRegistration::~CudaRegistration() {
  use_device(shared_->options.index);
  ignore(cudaDeviceSynchronize());
  release();
}

void CudaRegistration::release() noexcept {
  for (std::byte* piece : pieces_) {
    shared_->hosts.remove(piece);
    ignore(cudaHostUnregister(piece));
  }
  pieces_.clear();
}

}  // namespace sluice::gpu::cuda
