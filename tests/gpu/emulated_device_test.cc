// The emulated device with LibTorch: the conformance suite, and tensors under the device's budget.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "device_suite.h"
#include "gpu/cpu_allocator.h"
#include "gpu/emulated_device.h"

namespace sluice::gpu {
namespace {

using namespace base;

INSTANTIATE_TEST_SUITE_P(Emulated, DeviceSuite, testing::Values(DeviceCase{"emulated", make_emulated_device}),
                         [](const auto& device) { return device.param.name; });

void on(Stream& stream, std::function<void()> work) {
  stream.enqueue(std::move(work));
  stream.synchronize();
}

TEST(EmulatedDevice, TensorsOfItsStreamsAreChargedExactly) {
  const auto device = make_emulated_device({.memory = 1000});
  const auto stream = device->create_stream("compute");
  at::Tensor kept;
  on(*stream, [&] { kept = at::empty({125}, at::kFloat); });
  EXPECT_EQ(device->memory().temporaries, 500u);
  on(*stream, [&] { (void)at::empty({500}, at::kChar); });
  EXPECT_EQ(device->memory().temporaries, 500u);
  EXPECT_EQ(device->memory().temporaries_peak, 1000u);
  try {
    on(*stream, [&] { (void)at::empty({501}, at::kChar); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device_memory);
  }
  kept.reset();
  EXPECT_EQ(device->memory().temporaries, 0u);
}

TEST(EmulatedDevice, TensorsOfOtherThreadsAreNotCharged) {
  const auto device = make_emulated_device({.memory = 1000});
  const uint64_t before = tensor_memory_stats().uncharged;
  const at::Tensor outside = at::empty({5000}, at::kChar);
  EXPECT_EQ(device->memory().temporaries, 0u);
  EXPECT_EQ(tensor_memory_stats().uncharged, before + 5000);
}

TEST(EmulatedDevice, AnOverrunInABackwardSurfacesAsItIsAndLeaksNothing) {
  constexpr uint64_t kBytes = 4 * 64 * 64;
  // Forward and backward of sum((x w) w): find the peak, then run with one byte less.
  const auto step = [](Stream& stream) {
    on(stream, [] {
      at::Tensor x = at::ones({64, 64}), w = at::ones({64, 64});
      w.requires_grad_(true);
      const at::Tensor loss = at::mm(at::mm(x, w), w).sum();
      torch::autograd::backward({loss}, {});
      w.mutable_grad().reset();
    });
  };
  uint64_t peak = 0, forward = 0;
  {
    const auto device = make_emulated_device({.memory = 1_GiB});
    const auto stream = device->create_stream("compute");
    step(*stream);
    peak = device->memory().peak;
    device->reset_peak();
    step(*stream);
    EXPECT_EQ(device->memory().peak, peak);
    EXPECT_EQ(device->memory().temporaries, 0u);
    forward = 4 * kBytes;  // x, w and both products
    EXPECT_GT(peak, forward);
  }
  {
    const auto device = make_emulated_device({.memory = peak});
    const auto stream = device->create_stream("compute");
    step(*stream);
  }
  const auto device = make_emulated_device({.memory = peak - 1});
  const auto stream = device->create_stream("compute");
  try {
    step(*stream);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device_memory);
  }
  EXPECT_EQ(device->memory().temporaries, 0u);
}

TEST(EmulatedDevice, PoisonedTensorsStartAsNaN) {
  const auto device = make_emulated_device({.poison = true});
  const auto stream = device->create_stream("compute");
  bool fp32 = false, bf16 = false;
  on(*stream, [&] {
    fp32 = std::isnan(at::empty({100}, at::kFloat)[99].item<float>());
    bf16 = std::isnan(at::empty({100}, at::kBFloat16)[99].item<float>());
  });
  EXPECT_TRUE(fp32);
  EXPECT_TRUE(bf16);
}

TEST(EmulatedDevice, TheRawInterfaceOfTheAllocatorWorks) {
  install_tensor_allocator();
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  void* const data = allocator->raw_allocate(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
  std::memset(data, 7, 100);
  const c10::DataPtr copy = allocator->clone(data, 100);
  EXPECT_EQ(std::memcmp(copy.get(), data, 100), 0);
  allocator->raw_deallocate(data);
  EXPECT_EQ(allocator->allocate(0).get(), nullptr);
}

TEST(EmulatedDevice, ComputeThreadsAreSet) {
  const auto device = make_emulated_device({.compute_threads = 3});
  const auto stream = device->create_stream("compute");
  int threads = 0;
  on(*stream, [&] { threads = at::get_num_threads(); });
  EXPECT_EQ(threads, 3);
}

TEST(EmulatedDevice, AFreedTensorsBlockIsUsedAgain) {
  const auto device = make_emulated_device({});
  const auto stream = device->create_stream("compute");
  on(*stream, [&] {
    const void* first = at::empty({3000000}, at::kFloat).data_ptr();
    EXPECT_EQ(at::empty({3000000}, at::kFloat).data_ptr(), first);
  });
}

}  // namespace
}  // namespace sluice::gpu
