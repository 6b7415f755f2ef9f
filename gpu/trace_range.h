// A named range of host time for CUDA's profilers (NVTX): the device work enqueued inside it is shown under its name. In target
// sluice_gpu_cuda; in a build without CUDA there is no such profiler, and a range does nothing.
#pragma once
#include <string>

namespace sluice::gpu {

// Ranges of a thread nest.
class TraceRange {
 public:
  explicit TraceRange(const std::string& name);
  ~TraceRange();
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace sluice::gpu
