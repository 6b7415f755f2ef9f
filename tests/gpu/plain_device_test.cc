// The emulated device without LibTorch: the conformance suite, and the memory that tensors come from.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/units.h"
#include "device_suite.h"
#include "gpu/tensor_account.h"
#include "gpu/tensor_memory.h"

namespace sluice::gpu {
namespace {

using namespace base;

std::unique_ptr<Device> make_opaque(EmulatedOptions options) {
  options.opaque = true;
  return make_plain_device(options);
}

INSTANTIATE_TEST_SUITE_P(Plain, DeviceSuite,
                         testing::Values(DeviceCase{"plain", [](const EmulatedOptions& o) { return make_plain_device(o); }},
                                         DeviceCase{"opaque", make_opaque}),
                         [](const auto& device) { return device.param.name; });

// Charges the tensors of the calling thread to an account of its own.
class Charged {
 public:
  explicit Charged(uint64_t limit, bool poison = false)
      : budget(std::make_shared<Budget>("device", limit, ErrorKind::device_memory)),
        account(std::make_shared<TensorAccount>(budget, poison)) {
    set_thread_account(&account);
  }
  ~Charged() { set_thread_account(nullptr); }
  std::shared_ptr<Budget> budget;
  std::shared_ptr<TensorAccount> account;
};

TEST(TensorMemory, EverySizeIsAlignedWritableAndKeptApart) {
  TensorMemory memory;
  std::vector<std::pair<std::byte*, size_t>> blocks;
  for (const size_t base_size : {1ul, 64ul, 896ul, 1024ul, 4096ul, 100000ul, 2097024ul, 2097152ul, 5000000ul})
    for (const size_t bytes : {base_size - 1, base_size, base_size + 1}) {
      auto* const data = static_cast<std::byte*>(memory.allocate(bytes));
      if (bytes == 0) {
        EXPECT_EQ(data, nullptr);
        continue;
      }
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
      std::memset(data, static_cast<int>(blocks.size() + 1), bytes);
      blocks.emplace_back(data, bytes);
    }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [data, bytes] = blocks[i];
    EXPECT_EQ(static_cast<size_t>(data[0]), i + 1);
    EXPECT_EQ(static_cast<size_t>(data[bytes - 1]), i + 1);
    memory.free(data);
  }
  EXPECT_EQ(memory.stats().live, 0u);
  EXPECT_EQ(memory.stats().uncharged, 0u);
  memory.release_cached();
  EXPECT_EQ(memory.stats().cached, 0u);
}

TEST(TensorMemory, AFreedBlockIsHandedOutAgain) {
  TensorMemory memory;
  void* const first = memory.allocate(3_MiB);
  memory.free(first);
  EXPECT_GT(memory.stats().cached, 3_MiB);
  EXPECT_EQ(memory.allocate(3_MiB - 100), first);
  EXPECT_EQ(memory.stats().cached, 0u);
  memory.free(first);
  memory.release_cached();
}

TEST(TensorMemory, LessThanAnEighthOfABlockIsUnused) {
  TensorMemory memory;
  for (const size_t bytes : {5000ul, 66000ul, 1100000ul, 33000000ul}) {
    void* const data = memory.allocate(bytes);
    EXPECT_LE(memory.stats().live, (bytes + 128) + (bytes + 128) / 8 + 1);
    memory.free(data);
  }
  memory.release_cached();
}

TEST(TensorMemory, WhatIsCachedNeverPassesTheMostThatWasLive) {
  TensorMemory memory;
  for (size_t bytes = 40_MiB; bytes < 400_MiB; bytes += bytes / 4) memory.free(memory.allocate(bytes));  // one live at a time
  EXPECT_LE(memory.stats().cached, 450_MiB);
  EXPECT_GE(memory.stats().cached, 200_MiB);
  memory.release_cached();
}

TEST(TensorMemory, ChargesRequestedBytesExactly) {
  TensorMemory memory;
  Charged charged(1000);
  void* const a = memory.allocate(600);
  EXPECT_EQ(charged.account->used(), 600u);
  EXPECT_EQ(charged.budget->used(), 600u);
  EXPECT_THROW((void)memory.allocate(401), Error);
  EXPECT_EQ(charged.account->used(), 600u);
  void* const b = memory.allocate(400);
  std::thread([&] { memory.free(a); }).join();  // given back to the account that was charged
  EXPECT_EQ(charged.account->used(), 400u);
  memory.free(b);
  EXPECT_EQ(charged.budget->used(), 0u);
  EXPECT_EQ(charged.account->peak(), 1000u);
  charged.account->reset_peak();
  EXPECT_EQ(charged.account->peak(), 0u);
  EXPECT_GT(memory.stats().cached, 0u);
  memory.release_cached();
}

TEST(TensorMemory, ATensorMayOutliveItsDevice) {
  TensorMemory memory;
  void* data = nullptr;
  {
    const Charged charged(1000);
    data = memory.allocate(600);
  }
  memory.free(data);
  memory.release_cached();
}

TEST(TensorMemory, PoisonFillsFreshAndFreedMemory) {
  TensorMemory memory;
  const Charged charged(1_MiB, true);
  auto* const data = static_cast<float*>(memory.allocate(4000));
  EXPECT_TRUE(std::isnan(data[0]) && std::isnan(data[999]));
  std::fill(data, data + 1000, 1.0f);
  memory.free(data);
  EXPECT_TRUE(std::isnan(data[0]) && std::isnan(data[999]));  // still ours: a cached block
  memory.release_cached();
}

TEST(TensorMemory, ThreadsAllocateAndFreeSideBySide) {
  TensorMemory memory;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&memory, t] {
      std::mt19937 random(t);
      std::vector<std::pair<unsigned char*, size_t>> mine;
      for (int i = 0; i < 2000; ++i) {
        if (mine.size() < 20) {
          const size_t bytes = 1 + random() % 20000;
          auto* const data = static_cast<unsigned char*>(memory.allocate(bytes));
          data[0] = data[bytes - 1] = static_cast<unsigned char>(t);
          mine.emplace_back(data, bytes);
        } else {
          const size_t at = random() % mine.size();
          EXPECT_EQ(mine[at].first[0], t);
          EXPECT_EQ(mine[at].first[mine[at].second - 1], t);
          memory.free(mine[at].first);
          mine[at] = mine.back();
          mine.pop_back();
        }
      }
      for (const auto& [data, bytes] : mine) memory.free(data);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(memory.stats().live, 0u);
  memory.release_cached();
}

TEST(PlainDevice, EachStreamThreadChargesTheDeviceAndIsPrepared) {
  std::atomic<int> prepared = 0;
  const auto device = make_plain_device({.memory = 1_MiB}, [&] { ++prepared; });
  const auto stream = device->create_stream("compute");
  TensorMemory memory;
  void* data = nullptr;
  stream->enqueue([&] { data = memory.allocate(1000); });
  stream->synchronize();
  EXPECT_EQ(prepared, 1);
  EXPECT_EQ(device->memory().temporaries, 1000u);
  EXPECT_EQ(device->memory().arenas, 0u);
  const auto buffer = device->allocate(500, "slot");
  EXPECT_EQ(device->memory().peak, 1500u);
  EXPECT_EQ(device->memory().temporaries_peak, 1000u);
  memory.free(data);
  EXPECT_EQ(device->memory().temporaries, 0u);
  void* const outside = memory.allocate(1000);  // this thread belongs to no device
  EXPECT_EQ(device->memory().temporaries, 0u);
  EXPECT_EQ(memory.stats().uncharged, 1000u);
  memory.free(outside);
  memory.release_cached();
}

TEST(PlainDevice, DenormalsAreKeptOnStreamThreads) {
  const auto device = make_plain_device({});
  const auto stream = device->create_stream("compute");
  volatile float tiny = 1e-39f, result = 0;
  stream->enqueue([&] { result = tiny * 0.5f; });
  stream->synchronize();
  EXPECT_GT(result, 0.0f);
}

}  // namespace
}  // namespace sluice::gpu
