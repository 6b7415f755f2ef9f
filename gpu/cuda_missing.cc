// In place of the CUDA device in a build without a CUDA toolkit.
#include "base/error.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_report.h"
#include "gpu/trace_range.h"

namespace sluice::gpu {
namespace {
constexpr const char* kHow =
    "this sluice was built without CUDA: install the CUDA 13 toolkit (nvcc, cuDNN, NCCL), remove the build folder, and run scripts/setup "
    "and scripts/build again";
}

CudaUse can_use_cuda(int) { return {false, kHow}; }

std::string identify_cuda(int) { base::fail(base::ErrorKind::config, "{}", kHow); }

std::unique_ptr<Device> make_cuda_device(const CudaOptions&) {
  base::fail(base::ErrorKind::config, "machine.device is \"cuda\", but {}; or take machine.device \"cpu\"", kHow);
}

uint64_t free_cuda_memory(int) { return 0; }

CudaReport report_cuda() { return {.built = false, .error = kHow}; }

TraceRange::TraceRange(const std::string&) {}
TraceRange::~TraceRange() = default;

CopyRates measure_copies(int, uint64_t, uint64_t, bool) { base::fail(base::ErrorKind::config, "{}", kHow); }

}  // namespace sluice::gpu
