#include "gpu/cuda_stream.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <utility>

#include "gpu/cuda_check.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_kernels.h"

namespace sluice::gpu::cuda {
namespace {

constexpr size_t kStaging = kCudaStreamBytes;

bool is_device_memory(const void* address) {
  cudaPointerAttributes attributes;
  check(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeDevice;
}

int launch_cast(const float* from, std::byte* to, size_t count, WireType type, CUstream_st* stream) {
  auto* half = reinterpret_cast<uint16_t*>(to);
  return type == WireType::bf16 ? launch_cast_to_bf16(from, half, count, stream) : launch_cast_to_fp16(from, half, count, stream);
}

}  // namespace

CudaStream::CudaStream(std::shared_ptr<Shared> shared, const std::string& name)
    : shared_(std::move(shared)),
      stream_(c10::cuda::getStreamFromPool(false, static_cast<c10::DeviceIndex>(shared_->options.index))),
      staging_(shared_, kStaging, "copies of stream " + name) {}

CudaStream::~CudaStream() {
  use_device(shared_->options.index);
  ignore(cudaStreamSynchronize(stream_.stream()));
}

void CudaStream::attempt(const std::function<void()>& work) noexcept {
  if (failure_) return;
  try {
    const c10::cuda::CUDAStreamGuard guard(stream_.unwrap());
    translate_errors(work);
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void CudaStream::enqueue(std::function<void()> work) { attempt(work); }

void CudaStream::copy_in(std::byte* device, const std::byte* host, size_t bytes) {
  attempt([&] {
    if (shared_->options.poison) check(cudaMemsetAsync(device, 0xff, bytes, stream_.stream()), "cudaMemsetAsync");
    shared_->hosts.for_each_part(host, bytes, [&](size_t offset, size_t part) {
      check(cudaMemcpyAsync(device + offset, host + offset, part, cudaMemcpyHostToDevice, stream_.stream()),
            "cudaMemcpyAsync (host to device)");
    });
  });
}

void CudaStream::copy_out(std::byte* host, const std::byte* device, size_t bytes) {
  attempt([&] { copy_from_device(host, device, bytes); });
}

void CudaStream::copy(std::byte* to, const std::byte* from, size_t bytes) {
  attempt([&] {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_.stream()), "cudaMemcpyAsync (device to device)");
  });
}

void CudaStream::copy_from_device(std::byte* host, const std::byte* device, size_t bytes) const {
  shared_->hosts.for_each_part(host, bytes, [&](size_t offset, size_t part) {
    check(cudaMemcpyAsync(host + offset, device + offset, part, cudaMemcpyDeviceToHost, stream_.stream()),
          "cudaMemcpyAsync (device to host)");
  });
}

void CudaStream::cast_out(std::byte* to, const float* device, size_t count, WireType type) {
  attempt([&] {
    if (count == 0) return;
    const auto* from = reinterpret_cast<const std::byte*>(device);
    if (!is_device_memory(to)) {
      if (type == WireType::fp32) return copy_from_device(to, from, count * sizeof(float));
      return cast_to_host(to, device, count, type);
    }
    if (type == WireType::fp32)
      check(cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyDeviceToDevice, stream_.stream()),
            "cudaMemcpyAsync (device to device)");
    else
      check(launch_cast(device, to, count, type, stream_.stream()), "cast kernel");
  });
}

// Stream order alone keeps the next kernel from overwriting what the copy before it still reads.
void CudaStream::cast_to_host(std::byte* to, const float* device, size_t count, WireType type) {
  constexpr size_t kPart = kStaging / sizeof(uint16_t);
  for (size_t done = 0; done < count; done += kPart) {
    const size_t part = std::min(kPart, count - done);
    check(launch_cast(device + done, staging_.data(), part, type, stream_.stream()), "cast kernel");
    copy_from_device(to + done * sizeof(uint16_t), staging_.data(), part * sizeof(uint16_t));
  }
}

void CudaStream::leaf_norms(double* sums, const WireGradient& grad, size_t count) {
  attempt([&] { check(launch_leaf_norms(sums, grad, count, stream_.stream()), "norm kernel"); });
}

void CudaStream::adam(const AdamRun& run) {
  attempt([&] { check(launch_adam(run, stream_.stream()), "Adam kernel"); });
}

void CudaStream::rank_sum(const RankSum& sum) {
  attempt([&] { check(launch_rank_sum(sum, stream_.stream()), "kernel of the sum over ranks"); });
}

Event CudaStream::record() {
  cudaEvent_t event = nullptr;
  try {
    event = shared_->events->take();
    use_device(shared_->options.index);
    check(cudaEventRecord(event, stream_.stream()), "cudaEventRecord");
  } catch (...) {
    if (event != nullptr) shared_->events->give_back(std::exchange(event, nullptr));
    if (!failure_) failure_ = std::current_exception();
  }
  return Event(std::make_shared<CudaEvent>(shared_->events, event, failure_));
}

void CudaStream::wait(const Event& event) {
  if (!event.state()) return;
  attempt([&] {
    const auto* point = dynamic_cast<const CudaEvent*>(event.state().get());
    SLUICE_CHECK(point != nullptr, "a CUDA stream waits for an event of another kind of device");
    if (point->failure()) std::rethrow_exception(point->failure());
    check(cudaStreamWaitEvent(stream_.stream(), point->event(), cudaEventWaitDefault), "cudaStreamWaitEvent");
  });
}

void CudaStream::synchronize() {
  use_device(shared_->options.index);
  const cudaError_t status = cudaStreamSynchronize(stream_.stream());
  if (failure_) {
    ignore(status);
    std::rethrow_exception(failure_);
  }
  check(status, "cudaStreamSynchronize");
}

}  // namespace sluice::gpu::cuda
