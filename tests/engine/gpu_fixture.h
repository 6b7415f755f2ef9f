// Tests that need a GPU.
#pragma once
#include <gtest/gtest.h>

#include "gpu/cuda_device.h"

namespace sluice::engine {

// Skipped, with the reason, where no CUDA device can be used. The device object sets LibTorch to deterministic kernels.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const gpu::CudaUse use = gpu::can_use_cuda();
    if (!use.usable) GTEST_SKIP() << "no CUDA device: " << use.reason;
    device_ = gpu::make_cuda_device({});
  }
  std::unique_ptr<gpu::Device> device_;
};

}  // namespace sluice::engine
