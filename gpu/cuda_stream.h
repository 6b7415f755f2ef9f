// A CUDA stream as gpu::Stream. Internal to the CUDA device.
#pragma once
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <memory>
#include <string>

#include "gpu/cuda_memory.h"

namespace sluice::gpu::cuda {

// One of LibTorch's pooled streams: non-blocking (the legacy stream and it never wait for each other), never destroyed. LibTorch's
// tensors made inside enqueue() belong to it, so what one step of its work frees the next may take at once.
class CudaStream final : public Stream {
 public:
  CudaStream(std::shared_ptr<Shared> shared, const std::string& name);
  ~CudaStream() override;

  void enqueue(std::function<void()> work) override;
  void copy_in(std::byte* device, const std::byte* host, size_t bytes) override;
  void copy_out(std::byte* host, const std::byte* device, size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void cast_out(std::byte* to, const float* device, size_t count, WireType type) override;
  void leaf_norms(double* sums, const WireGradient& grad, size_t count) override;
  void adam(const AdamRun& run) override;
  void rank_sum(const RankSum& sum) override;
  Event record() override;
  void wait(const Event& event) override;
  void synchronize() override;
  void* native() const override { return stream_.stream(); }

 private:
  // Runs unless the stream has failed, with its device current; keeps the first failure.
  void attempt(const std::function<void()>& work) noexcept;
  void copy_from_device(std::byte* host, const std::byte* device, size_t bytes) const;
  void cast_to_host(std::byte* to, const float* device, size_t count, WireType type);

  const std::shared_ptr<Shared> shared_;
  const c10::cuda::CUDAStream stream_;
  const CudaBuffer staging_;     // rounded gradients on their way to the host
  std::exception_ptr failure_;   // only touched by the thread that enqueues
};

}  // namespace sluice::gpu::cuda
