#include "gpu/cuda_check.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <string_view>

namespace sluice::gpu::cuda {

using base::ErrorKind;

bool is_lost(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

ErrorKind kind_of(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return ErrorKind::device_memory;
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorHostMemoryNotRegistered:
      return ErrorKind::bug;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
    case cudaErrorStubLibrary:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorCompatNotSupportedOnDevice:
      return ErrorKind::config;
    default:
      return ErrorKind::bug;
  }
}

std::string explain(cudaError_t error, const std::string& call) {
  std::string text = fmt::format("{}: {} ({})", call, cudaGetErrorName(error), cudaGetErrorString(error));
  if (is_lost(error))
    text +=
        ". An earlier kernel or the device itself failed, and this process cannot use the GPU any more. Start again with --resume "
        "auto; if it comes back, see dmesg for Xid lines and run with CUDA_LAUNCH_BLOCKING=1";
  else if (kind_of(error) == ErrorKind::config)
    text += ". See `sluice doctor`, or take machine.device \"cpu\"";
  return text;
}

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  ignore(error);
  throw base::Error(kind_of(error), explain(error, call));
}

void check(cudaError_t error, const char* call, const std::string& details) {
  if (error != cudaSuccess) check(error, fmt::format("{}({})", call, details).c_str());
}

void ignore(cudaError_t error) noexcept {
  if (error != cudaSuccess) (void)cudaGetLastError();
}

void quietly(const std::function<void()>& work) noexcept {
  try {
    work();
  } catch (...) {
    (void)cudaGetLastError();
  }
}

void check_environment(bool deterministic) {
  if (std::getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != nullptr)
    base::fail(ErrorKind::config, "PYTORCH_NO_CUDA_MEMORY_CACHING is set: every tensor would wait for the whole GPU, and none would be counted. Unset it");
  const char* workspace = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  if (!deterministic || workspace == nullptr || std::string_view(workspace) == ":4096:8" || std::string_view(workspace) == ":16:8") return;
  base::fail(ErrorKind::config,
             "CUBLAS_WORKSPACE_CONFIG is \"{}\", with which matrix products may give other bits each time. Unset it, make it :4096:8 or :16:8, or "
             "set run.deterministic to false",
             workspace);
}

void use_device(int device) noexcept {
  quietly([device] { ignore(c10::cuda::SetDevice(static_cast<c10::DeviceIndex>(device))); });
}

namespace {

// LibTorch's messages go on with advice for Python and a stack.
std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

// cuBLAS takes memory of its own, beside what the caching allocator may hold.
bool lacks_room(const std::string& text) { return text.find("STATUS_ALLOC_FAILED") != std::string::npos; }

}  // namespace

void translate_errors(const std::function<void()>& work) {
  try {
    work();
  } catch (const c10::OutOfMemoryError& error) {
    (void)cudaGetLastError();
    base::fail(ErrorKind::device_memory, "no room for LibTorch's temporaries: {}", first_line(error));
  } catch (const c10::AcceleratorError& error) {
    (void)cudaGetLastError();
    const auto code = static_cast<cudaError_t>(error.get_error_code());
    throw base::Error(kind_of(code), explain(code, "LibTorch"));
  } catch (const c10::Error& error) {
    (void)cudaGetLastError();
    const std::string text = first_line(error);
    if (lacks_room(text)) base::fail(ErrorKind::device_memory, "no room on the GPU beside memory.gpu: {}. Lower memory.gpu", text);
    base::fail(ErrorKind::bug, "LibTorch: {}", text);
  }
}

}  // namespace sluice::gpu::cuda
