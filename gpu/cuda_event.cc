#include "gpu/cuda_event.h"

#include <c10/cuda/CUDAGuard.h>

#include "gpu/cuda_check.h"

namespace sluice::gpu::cuda {

EventPool::~EventPool() {
  for (const cudaEvent_t event : free_) ignore(cudaEventDestroy(event));
}

cudaEvent_t EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  // An event belongs to the device that is current when it is made.
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device_));
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "cudaEventCreateWithFlags");
  return event;
}

void EventPool::give_back(cudaEvent_t event) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) pool_->give_back(event_);
}

bool CudaEvent::reached() const {
  if (event_ == nullptr) return true;
  const cudaError_t status = cudaEventQuery(event_);
  ignore(status);  // cudaErrorNotReady is kept as the thread's last error too
  return status != cudaErrorNotReady;
}

void CudaEvent::synchronize() const {
  if (failure_) std::rethrow_exception(failure_);
  if (event_ != nullptr) check(cudaEventSynchronize(event_), "cudaEventSynchronize");
}

}  // namespace sluice::gpu::cuda
