// Norm and Adam of tiles whose state is in device memory that the host cannot address.
#pragma once
#include <span>

#include "cpu_adam/adam.h"
#include "gpu/device.h"

namespace sluice::engine {

// The same bits as cpu_adam::CpuAdam, on a stream of its own; each call waits for that stream, not for the device. Used by one
// thread at a time. Pointers of gradients and state are device memory.
class DeviceUpdate {
 public:
  // sums, host_sums: room for one double a leaf of a tile, on the device and in registered host memory. All outlive the object.
  DeviceUpdate(gpu::Stream& stream, double* sums, double* host_sums) : stream_(stream), sums_(sums), host_sums_(host_sums) {}

  void squared_norms(const cpu_adam::Gradient& grad, const cpu_adam::Gradient& grad2, size_t count, std::span<double> leaf_sums);
  void update(const cpu_adam::TileUpdate& tile);  // no hashes: the host does not see the bytes

 private:
  gpu::Stream& stream_;
  double* const sums_;
  double* const host_sums_;
};

}  // namespace sluice::engine
