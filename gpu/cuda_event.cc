#include "gpu/cuda_event.h"

#include "gpu/cuda_check.h"

namespace sluice::gpu::cuda {

EventPool::~EventPool() {
  use_device(device_);
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
  use_device(device_);  // whose the event will be
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
  use_device(pool_->device());
  const cudaError_t status = cudaEventQuery(event_);
  ignore(status);  // cudaErrorNotReady is kept as the thread's last error too
  return status != cudaErrorNotReady;
}

void CudaEvent::synchronize() const {
  cudaError_t status = cudaSuccess;
  if (event_ != nullptr) {
    use_device(pool_->device());
    status = cudaEventSynchronize(event_);
  }
  if (failure_) {
    ignore(status);
    std::rethrow_exception(failure_);
  }
  check(status, "cudaEventSynchronize");
}

}  // namespace sluice::gpu::cuda
