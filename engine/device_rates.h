// Pieces of work that a device's rates are measured with: copies, and Adam in its own memory. Of the device they need its contract alone,
// so a GPU and the emulated device are measured alike. LibTorch-free.
#pragma once
#include <cstddef>
#include <memory>

#include "base/arena.h"
#include "gpu/device.h"

namespace sluice::engine {

// Tiles of weights to the device, tiles of rounded gradients back, many in a row as a step has them. Host memory is registered. Each
// call waits for its end. One thread at a time.
class CopyWork {
 public:
  explicit CopyWork(gpu::Device& device);
  void in();
  void out();
  static double bytes();  // of a call
  // Seconds that the calling thread spends on what the executor enqueues for a copy: a wait, the copy, its event.
  double enqueue_seconds();
  // Seconds until this thread knows that a copy of hardly anything is done.
  double latency_seconds();

 private:
  void copy_in(size_t tile);
  const std::unique_ptr<gpu::Stream> stream_;
  const std::unique_ptr<gpu::DeviceBuffer> device_;
  const base::Arena host_;
  const std::unique_ptr<gpu::HostRegistration> registered_;
};

// Bytes per second of both ways at once, in sum, for about so long.
double measure_both_ways(CopyWork& in, CopyWork& out, double seconds);

// Adam on tiles of bf16 state and gradients in device memory, as blocks that stay there are updated. Each call waits for its end.
class DeviceAdamWork {
 public:
  explicit DeviceAdamWork(gpu::Device& device);
  void update();
  static double parameters();  // of a call

 private:
  const std::unique_ptr<gpu::Stream> stream_;
  const std::unique_ptr<gpu::DeviceBuffer> state_;
};

}  // namespace sluice::engine
