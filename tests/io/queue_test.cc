// What every disk queue does.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "io/page_cache.h"
#include "tests/io/queue_fixture.h"

namespace sluice::io {
namespace {

using base::ErrorKind;

TEST_P(QueueTest, TransfersEverySizeAndOffset) {
  const auto queue = make();
  const File file = create("data", 4_MiB);
  uint64_t seed = 0;
  for (const uint64_t bytes : {0_KiB, 4_KiB, 60_KiB, 64_KiB, 68_KiB, 256_KiB, 1028_KiB})
    for (const uint64_t offset : {0_KiB, 4_KiB, 64_KiB, 2044_KiB}) {
      const std::span<std::byte> out = memory_.span(4_KiB, bytes);
      const std::span<std::byte> in = memory_.span(memory_.size() - 2_MiB, bytes);
      fill_pattern(out, ++seed, offset);
      submit(*queue, {IoOp::write, &file, out.data(), bytes, offset}).get();
      submit(*queue, {IoOp::read, &file, in.data(), bytes, offset}).get();
      EXPECT_TRUE(has_pattern(in, seed, offset)) << bytes << " at " << offset;
    }
  const QueueStats stats = queue->stats();
  EXPECT_EQ(stats.requests, 2u * 7 * 4);
  EXPECT_EQ(stats.bytes_read, stats.bytes_written);
  EXPECT_EQ(stats.failures, 0u);
}

TEST_P(QueueTest, CompletesEachOfManyConcurrentRequestsOnce) {
  constexpr size_t kRequests = 64;
  constexpr uint64_t kBytes = 128 << 10;
  const auto queue = make();
  const File file = create("data", kRequests * kBytes);
  std::vector<std::atomic<int>> calls(kRequests);
  for (size_t i = 0; i < kRequests; ++i) {
    const std::span<std::byte> data = memory_.span(i * kBytes, kBytes);
    fill_pattern(data, 7, i * kBytes);
    queue->submit({IoOp::write, &file, data.data(), kBytes, i * kBytes},
                  [&calls, i](std::exception_ptr error) {
                    EXPECT_FALSE(error);
                    ++calls[i];
                  });
  }
  queue->drain();
  for (const auto& count : calls) EXPECT_EQ(count, 1);
  submit(*queue, {.op = IoOp::sync, .file = &file}).get();

  std::fill(memory_.all().begin(), memory_.all().end(), std::byte{0});
  std::atomic<int> reads = 0;
  for (size_t i = kRequests; i-- > 0;)
    queue->submit({IoOp::read, &file, memory_.data() + i * kBytes, kBytes, i * kBytes},
                  [&](std::exception_ptr error) {
                    EXPECT_FALSE(error);
                    ++reads;
                  });
  queue->drain();
  EXPECT_EQ(reads, static_cast<int>(kRequests));
  EXPECT_TRUE(has_pattern(memory_.all(), 7, 0));
}

TEST_P(QueueTest, TakesRequestsFromSeveralThreadsAtOnce) {
  const auto queue = make();
  const File file = create("data", 8_MiB);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int round = 0; round < 20; ++round) {
        const uint64_t bytes = (1 + random() % 48) * kAlignment;
        const uint64_t offset = t * 2_MiB + random() % 256 * kAlignment;
        const std::span<std::byte> data = memory_.span(t * 2_MiB, bytes);
        fill_pattern(data, t, offset);
        submit(*queue, {IoOp::write, &file, data.data(), bytes, offset}).get();
        std::fill(data.begin(), data.end(), std::byte{0});
        submit(*queue, {IoOp::read, &file, data.data(), bytes, offset}).get();
        EXPECT_TRUE(has_pattern(data, t, offset));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_P(QueueTest, TakesRequestsFromWithinDone) {
  const auto queue = make();
  const File file = create("data", 1_MiB);
  std::atomic<int> left = 50;
  std::function<void(std::exception_ptr)> again = [&](std::exception_ptr error) {
    EXPECT_FALSE(error);
    if (--left > 0) queue->submit({IoOp::write, &file, memory_.data(), 128_KiB, 0}, again);
  };
  queue->submit({IoOp::write, &file, memory_.data(), 128_KiB, 0}, again);
  queue->drain();  // waits for requests that callbacks submit, too
  EXPECT_EQ(left, 0);
}

TEST_P(QueueTest, DestructionDrains) {
  std::atomic<int> done = 0;
  const File file = create("data", 4_MiB);
  {
    const auto queue = make();
    for (uint64_t i = 0; i < 16; ++i)
      queue->submit({IoOp::write, &file, memory_.data(), 256_KiB, i * 256_KiB},
                    [&](std::exception_ptr) { ++done; });
  }
  EXPECT_EQ(done, 16);
}

TEST_P(QueueTest, MisalignedRequestsAndClosedFilesAreBugs) {
  const auto queue = make();
  const File file = create("data", 1_MiB);
  const File closed;
  const auto expect_bug = [&](const IoRequest& request) {
    EXPECT_NE(
        error_of(ErrorKind::bug,
                 [&] { queue->submit(request, [](std::exception_ptr) { ADD_FAILURE() << "done called"; }); }),
        "");
  };
  expect_bug({IoOp::read, &file, memory_.data() + 512, 4_KiB, 0});
  expect_bug({IoOp::read, &file, memory_.data(), 4000, 0});
  expect_bug({IoOp::write, &file, memory_.data(), 4_KiB, 512});
  expect_bug({IoOp::read, &closed, memory_.data(), 4_KiB, 0});
  expect_bug({IoOp::read, nullptr, memory_.data(), 4_KiB, 0});
  queue->drain();
}

// A ring's requests belong to the thread that submitted them to the kernel: that must not be the caller's.
TEST_P(QueueTest, ACallerMayEndBeforeItsRequestsDo) {
  const auto queue = make();
  const File file = create("data", 8_MiB);
  std::atomic<int> good = 0;
  for (uint64_t i = 0; i < 16; ++i)
    std::thread([&, i] {
      fill_pattern(memory_.span(i * 512_KiB, 512_KiB), 5, i * 512_KiB);
      queue->submit({IoOp::write, &file, memory_.data() + i * 512_KiB, 512_KiB, i * 512_KiB}, [&](std::exception_ptr error) { good += error ? 0 : 1; });
    }).join();
  queue->drain();
  EXPECT_EQ(good, 16);
  std::vector<std::byte> back(8_MiB);
  file.read_at(0, back);
  EXPECT_TRUE(has_pattern(back, 5, 0));
}

size_t cached_pages(const File& file) {
  const size_t pages = file.size() / kAlignment;
  void* map = mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.fd(), 0);
  if (map == MAP_FAILED) throw std::runtime_error("mmap");
  std::vector<unsigned char> resident(pages);
  const int result = mincore(map, file.size(), resident.data());
  munmap(map, file.size());
  if (result != 0) throw std::runtime_error("mincore");
  return static_cast<size_t>(std::ranges::count_if(resident, [](unsigned char r) { return (r & 1) != 0; }));
}

class PageCache : public QueueTest {};

TEST_P(PageCache, KeepsNothingOfWhatPassesThroughItWhereTheKernelCanDropIt) {
  const File file = create("data", 8_MiB);
  if (!can_drop_from_cache(file)) GTEST_SKIP() << "this file system keeps it";
  const auto queue = make();
  submit(*queue, {IoOp::write, &file, memory_.data(), 8_MiB, 0}).get();
  submit(*queue, {.op = IoOp::sync, .file = &file}).get();
  EXPECT_LT(cached_pages(file), 200u) << "of 2048 written";
  submit(*queue, {IoOp::read, &file, memory_.data(), 8_MiB, 0}).get();
  EXPECT_LT(cached_pages(file), 200u) << "of 2048 read";
}

INSTANTIATE_TEST_SUITE_P(All, QueueTest, all_backends(), backend_name);
INSTANTIATE_TEST_SUITE_P(All, PageCache,
                         ::testing::Values(Backend{"threads", false, false, false, {}, Scratch::On::disk, false},
                                           Backend{"uring", true, true, false, {}, Scratch::On::disk, false}),
                         backend_name);

}  // namespace
}  // namespace sluice::io
