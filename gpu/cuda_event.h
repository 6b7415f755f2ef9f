// CUDA events as gpu::Event. Internal to the CUDA device.
#pragma once
#include <cuda_runtime_api.h>

#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/device.h"

namespace sluice::gpu::cuda {

// Events without timing, whose waiters sleep instead of spinning (cores belong to Adam and the disk). Thread-safe. An event comes
// back only when its last handle is gone, so nobody can wait for it any more; a stream that was told to wait for it before keeps
// the point it had then (cudaStreamWaitEvent captures it). So it may be recorded again.
class EventPool {
 public:
  explicit EventPool(int device) : device_(device) {}
  ~EventPool();
  int device() const { return device_; }
  cudaEvent_t take();
  void give_back(cudaEvent_t event) noexcept;

 private:
  const int device_;
  std::mutex mutex_;  // guards free_
  std::vector<cudaEvent_t> free_;
};

// A recorded point, and the failure that the stream had before it, if any. Thread-safe.
class CudaEvent final : public Event::State {
 public:
  // event: of the pool; null when it could not be recorded, which is a failure. With a failure, what the stream has done before it may
  // still be at work.
  CudaEvent(std::shared_ptr<EventPool> pool, cudaEvent_t event, std::exception_ptr failure)
      : pool_(std::move(pool)), event_(event), failure_(std::move(failure)) {}
  ~CudaEvent() override;

  bool reached() const override;      // a lost device counts as reached; synchronize says what happened
  void synchronize() const override;

  cudaEvent_t event() const { return event_; }
  const std::exception_ptr& failure() const { return failure_; }

 private:
  const std::shared_ptr<EventPool> pool_;
  const cudaEvent_t event_;
  const std::exception_ptr failure_;
};

}  // namespace sluice::gpu::cuda
