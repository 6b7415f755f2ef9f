// The CUDA device: the conformance suite and what only it does, skipped without a GPU; and its error texts, which need none.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/units.h"
#include "device_suite.h"
#include "gpu/cuda_check.h"
#include "gpu/cuda_device.h"
#include "gpu/cuda_report.h"

namespace sluice::gpu {
namespace {

using namespace base;

// Work on a thread of CUDA's, in the stream's order; it may not call CUDA.
void run_in_order(Stream& stream, std::function<void()> work) {
  stream.enqueue([&work] {
    auto* const owned = new std::function<void()>(std::move(work));
    const auto call = [](void* data) {
      const std::unique_ptr<std::function<void()>> function(static_cast<std::function<void()>*>(data));
      (*function)();
    };
    cuda::check(cudaLaunchHostFunc(c10::cuda::getCurrentCUDAStream(), call, owned), "cudaLaunchHostFunc");
  });
}

DeviceCase cuda_case() {
  DeviceCase c{"cuda", [](const EmulatedOptions& o) {
                 return make_cuda_device({.memory = std::min<uint64_t>(o.memory, 1_GiB), .poison = o.poison});  // small GPUs have it too
               }};
  c.run_in_order = run_in_order;
  c.throttles = false;
  const CudaUse use = can_use_cuda();
  if (!use.usable) c.skip = "no CUDA device: " + use.reason;
  return c;
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceSuite, testing::Values(cuda_case()), [](const auto& device) { return device.param.name; });

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const CudaUse use = can_use_cuda(); !use.usable) GTEST_SKIP() << "no CUDA device: " << use.reason;
  }
};

at::TensorOptions on_gpu() { return at::TensorOptions().device(at::kCUDA, 0); }

void on(Stream& stream, const std::function<void()>& work) {
  stream.enqueue(work);
  stream.synchronize();
}

TEST_F(CudaDeviceTest, TemporariesAreLimitedToWhatTheArenasLeave) {
  const auto device = make_cuda_device({.memory = 1_GiB});
  const auto stream = device->create_stream("compute");
  const auto arena = device->allocate(600_MiB, "weights");
  on(*stream, [] { (void)at::empty({static_cast<int64_t>(300_MiB)}, on_gpu().dtype(at::kByte)); });
  try {
    on(*stream, [] { (void)at::empty({static_cast<int64_t>(500_MiB)}, on_gpu().dtype(at::kByte)); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device_memory) << error.what();
  }
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  const MemoryStats stats = device->memory();
  EXPECT_GE(stats.temporaries_peak, 300_MiB);
  EXPECT_GE(stats.held_peak, stats.temporaries_peak);
  EXPECT_LE(stats.held_peak, 1_GiB - 600_MiB);
}

TEST_F(CudaDeviceTest, WhatIsFreeIsWhatADeviceTakesNineTenthsOf) {
  const uint64_t free = free_cuda_memory();
  const auto device = make_cuda_device({});
  EXPECT_GT(free, device->budget().limit());
  EXPECT_LT(0.8 * static_cast<double>(free), static_cast<double>(device->budget().limit()));
}

TEST_F(CudaDeviceTest, MoreMemoryThanIsFreeIsRefused) {
  try {
    (void)make_cuda_device({.memory = uint64_t{1} << 50});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device_memory);
  }
}

TEST_F(CudaDeviceTest, EnqueueRunsAtOnceOnTheStreamAndReturnsBeforeTheDevice) {
  const auto device = make_cuda_device({.memory = 2_GiB});
  const auto stream = device->create_stream("compute");
  at::Tensor sum;
  std::thread::id thread;
  const auto work = [&] {
    thread = std::this_thread::get_id();
    const at::Tensor x = at::ones({256, 256}, on_gpu());
    sum = at::mm(x, x).sum();
  };
  on(*stream, work);  // loads kernels and fills the allocator's cache, which may wait for the device
  std::promise<void> released;
  run_in_order(*stream, [future = released.get_future().share()] { future.wait(); });
  stream->enqueue(work);
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_FALSE(stream->record().reached());
  released.set_value();
  stream->synchronize();
  EXPECT_EQ(sum.item<float>(), 256.0f * 256 * 256);
}

TEST_F(CudaDeviceTest, ALaunchThatFailsLeavesNoErrorBehind) {
  const auto device = make_cuda_device({.memory = 1_GiB});
  const auto stream = device->create_stream("s");
  stream->enqueue([] { cuda::check(cudaMemcpyAsync(nullptr, nullptr, 16, cudaMemcpyDeviceToHost, nullptr), "cudaMemcpyAsync"); });
  EXPECT_THROW(stream->synchronize(), Error);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  const auto fresh = device->create_stream("t");
  fresh->synchronize();
}

TEST_F(CudaDeviceTest, AThreadThatWaitsIsOnTheDeviceOfItsEvent) {
  const CudaUse second = can_use_cuda(1);
  if (!second.usable) GTEST_SKIP() << "no second CUDA device: " << second.reason;
  const auto device = make_cuda_device({.memory = 1_GiB, .index = 1});
  const auto stream = device->create_stream("s");
  for (const bool waits : {false, true}) {
    const Event event = stream->record();
    int current = -1;
    std::thread([&] { waits ? event.synchronize() : static_cast<void>(event.reached()), cudaGetDevice(&current); }).join();
    EXPECT_EQ(current, 1);
  }
}

// What follows needs no GPU.

TEST(CudaErrors, KindsSayWhoMustAct) {
  EXPECT_EQ(cuda::kind_of(cudaErrorMemoryAllocation), ErrorKind::device_memory);
  EXPECT_EQ(cuda::kind_of(cudaErrorInsufficientDriver), ErrorKind::config);
  EXPECT_EQ(cuda::kind_of(cudaErrorNoDevice), ErrorKind::config);
  EXPECT_EQ(cuda::kind_of(cudaErrorIllegalAddress), ErrorKind::bug);
}

TEST(CudaErrors, TextsNameTheCallTheErrorAndTheFix) {
  const std::string lost = cuda::explain(cudaErrorIllegalAddress, "cudaEventSynchronize");
  EXPECT_NE(lost.find("cudaEventSynchronize: cudaErrorIllegalAddress"), std::string::npos) << lost;
  EXPECT_NE(lost.find("--resume"), std::string::npos) << lost;
  const std::string driver = cuda::explain(cudaErrorInsufficientDriver, "cudaGetDeviceCount");
  EXPECT_NE(driver.find("sluice doctor"), std::string::npos) << driver;
  EXPECT_TRUE(cuda::is_lost(cudaErrorECCUncorrectable));
  EXPECT_TRUE(cuda::is_lost(cudaErrorMpsClientTerminated));
  EXPECT_FALSE(cuda::is_lost(cudaErrorMemoryAllocation));
  EXPECT_FALSE(cuda::is_lost(cudaErrorInvalidValue));
}

TEST(CudaErrors, CheckThrowsTypedErrorsOnly) {
  cuda::check(cudaSuccess, "cudaMalloc");
  try {
    cuda::check(cudaErrorMemoryAllocation, "cudaMalloc", "4.0 GiB for weights");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device_memory);
    EXPECT_NE(std::string(error.what()).find("cudaMalloc(4.0 GiB for weights)"), std::string::npos) << error.what();
  }
}

TEST(CudaErrors, LibTorchsErrorsAreTranslated) {
  const auto kind = [](const std::function<void()>& work) {
    try {
      cuda::translate_errors(work);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::goal;
  };
  EXPECT_EQ(kind([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory"); }), ErrorKind::device_memory);
  EXPECT_EQ(kind([] { TORCH_CHECK(false, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"); }),
            ErrorKind::device_memory);
  EXPECT_EQ(kind([] { TORCH_CHECK(false, "expected another shape"); }), ErrorKind::bug);
  EXPECT_EQ(kind([] { fail(ErrorKind::numerics, "ours"); }), ErrorKind::numerics);
  EXPECT_EQ(kind([] {}), ErrorKind::goal);
  try {
    cuda::translate_errors([] { TORCH_CHECK(false, "expected another shape\nadvice for Python"); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "LibTorch: expected another shape");
  }
  EXPECT_THROW(cuda::translate_errors([] { throw std::runtime_error("another"); }), std::runtime_error);
}

TEST(CudaErrors, VariablesThatBreakThePlanOrTheBitsAreRefused) {
  const auto refused = [](bool deterministic) {
    try {
      cuda::check_environment(deterministic);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::config);
      return std::string(error.what());
    }
    return std::string();
  };
  const char* const was = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  const std::string before = was == nullptr ? "" : was;
  unsetenv("CUBLAS_WORKSPACE_CONFIG");
  EXPECT_EQ(refused(true), "");
  setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
  EXPECT_EQ(refused(true), "");
  setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0", 1);
  EXPECT_EQ(refused(false), "");
  EXPECT_NE(refused(true).find("CUBLAS_WORKSPACE_CONFIG is \":0:0\""), std::string::npos);
  unsetenv("CUBLAS_WORKSPACE_CONFIG");
  setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", 1);
  EXPECT_NE(refused(false).find("PYTORCH_NO_CUDA_MEMORY_CACHING"), std::string::npos);
  unsetenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
  if (was != nullptr) setenv("CUBLAS_WORKSPACE_CONFIG", before.c_str(), 1);
}

TEST(CudaErrors, NothingLeavesADestructor) {
  cuda::use_device(1000);  // LibTorch throws
  cuda::quietly([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory"); });
  cuda::quietly([] { fail(ErrorKind::bug, "ours"); });
}

TEST(CudaErrors, WithoutADeviceItSaysWhy) {
  const CudaUse use = can_use_cuda();
  if (use.usable) GTEST_SKIP() << "there is a device: " << use.reason;
  EXPECT_EQ(free_cuda_memory(), 0u);
  try {
    (void)make_cuda_device({});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
    EXPECT_NE(std::string(error.what()).find(use.reason), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sluice::gpu
