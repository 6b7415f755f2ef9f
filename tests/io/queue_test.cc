// One suite for every disk queue.
#include <gmock/gmock.h>

#include <atomic>
#include <cerrno>
#include <random>
#include <vector>

#include "base/arena.h"
#include "base/units.h"
#include "io/disk_queue.h"
#include "io/faulty_queue.h"
#include "io/thread_queue.h"
#include "io/throttled_queue.h"
#include "io/uring_queue.h"
#include "tests/io/scratch.h"

namespace sluice::io {
namespace {

using base::ErrorKind;
using base::operator""_KiB;
using base::operator""_MiB;
using ::testing::HasSubstr;

struct Backend {
  const char* name;
  bool uring;
  bool registered;
  bool faulty;
  std::chrono::microseconds delay;
  Scratch::On on;
  bool direct;
  double throttle = 0;  // bytes per second
};

void PrintTo(const Backend& backend, std::ostream* out) {
  *out << backend.name;
}

class QueueTest : public ::testing::TestWithParam<Backend> {
 protected:
  QueueTest() : scratch_(GetParam().on), memory_(8_MiB, "the test") {}

  void SetUp() override {
    if (!GetParam().uring) return;
    if (const UringStatus status = probe_uring(); !status.usable()) GTEST_SKIP() << status.explanation();
  }

  // Small blocks, so that small requests are many pieces.
  std::unique_ptr<DiskQueue> make(QueueOptions options = {.block_size = 64_KiB, .depth = 4}) {
    const Backend& backend = GetParam();
    std::unique_ptr<DiskQueue> queue = backend.uring ? make_uring_queue(options) : make_thread_queue(options);
    if (backend.registered) {
      const std::span<std::byte> half =
          memory_.span(0, memory_.size() / 2);  // the other half stays unregistered
      queue->register_memory(std::span(&half, 1));
    }
    if (backend.throttle > 0)
      queue = make_throttled_queue(std::move(queue), {.read = backend.throttle, .write = backend.throttle});
    if (backend.faulty)
      queue = std::make_unique<FaultyQueue>(std::move(queue), FaultyOptions{.max_delay = backend.delay});
    return queue;
  }

  File create(const std::string& name, uint64_t bytes) {
    return File::create(scratch_ / name, bytes, {.direct = GetParam().direct});
  }

  Scratch scratch_;
  base::Arena memory_;
};

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

TEST_P(QueueTest, APastTheEndRequestFailsAndNamesTheFile) {
  const auto queue = make();
  const File file = create("data", 64_KiB);
  for (const IoOp op : {IoOp::read, IoOp::write})
    for (const uint64_t offset : {uint64_t{0}, uint64_t{32_KiB}, uint64_t{1_MiB}}) {
      const std::string text = error_of(ErrorKind::disk, [&] {
        submit(*queue, {op, &file, memory_.data(), 128_KiB, offset}).get();
      });
      EXPECT_THAT(text, HasSubstr(file.path().string()));
    }
  EXPECT_EQ(file.size(), 64_KiB);
  EXPECT_EQ(queue->stats().failures, 6u);
}

TEST_P(QueueTest, WritingAReadOnlyFileFails) {
  const auto queue = make();
  create("data", 1_MiB);
  const File file = File::open(scratch_ / "data", OpenMode::read, {.direct = GetParam().direct});
  std::atomic<int> calls = 0;
  queue->submit({IoOp::write, &file, memory_.data(), 1_MiB, 0}, [&](std::exception_ptr error) {
    EXPECT_TRUE(error);
    ++calls;
  });
  queue->drain();
  EXPECT_EQ(calls, 1);  // one call, though several pieces failed
  EXPECT_THAT(error_of(ErrorKind::disk,
                       [&] {
                         submit(*queue, {IoOp::write, &file, memory_.data(), 4_KiB, 0}).get();
                       }),
              HasSubstr("EBADF"));
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

// Every system call in turn fails once with each error that may pass by itself, or comes back short.
TEST_P(QueueTest, PassingErrorsAndShortTransfersAtEveryCallAreMadeGood) {
  constexpr int kCalls = 8;  // 4 pieces written, 4 read
  const File file = create("data", 256_KiB);
  for (const int64_t fault : {int64_t{-EAGAIN}, int64_t{-EINTR}, int64_t{4096}, int64_t{5000}, int64_t{100}})
    for (int nth = 0; nth < kCalls; ++nth) {
      int call = 0;
      const auto queue =
          make({.block_size = 64_KiB, .depth = 2, .alter_result = [&](IoOp, uint64_t, int64_t result) {
                  return call++ == nth ? fault : result;
                }});
      const std::span<std::byte> out = memory_.span(0, 256_KiB), in = memory_.span(6_MiB, 256_KiB);
      fill_pattern(out, static_cast<uint64_t>(nth), 0);
      std::fill(in.begin(), in.end(), std::byte{0});
      submit(*queue, {IoOp::write, &file, out.data(), out.size(), 0}).get();
      submit(*queue, {IoOp::read, &file, in.data(), in.size(), 0}).get();
      EXPECT_TRUE(has_pattern(in, static_cast<uint64_t>(nth), 0));
      EXPECT_EQ(call, kCalls + 1) << "the failed call is repeated";
      EXPECT_EQ(queue->stats().retries + queue->stats().short_transfers, 1u);
    }
}

TEST_P(QueueTest, LastingErrorsAtEveryCallFailTheRequestOnceAndSpareTheOthers) {
  const File file = create("data", 256_KiB);
  for (const IoOp op : {IoOp::read, IoOp::write})
    for (const int error : {ENOSPC, EINVAL, EDQUOT})
      for (int nth = 0; nth < 4; ++nth) {
        int call = 0;
        const auto queue =
            make({.block_size = 64_KiB, .depth = 3, .alter_result = [&](IoOp, uint64_t, int64_t result) {
                    return call++ == nth ? -error : result;
                  }});
        std::atomic<int> failed = 0, succeeded = 0;
        for (int i = 0; i < 2; ++i)
          queue->submit({op, &file, memory_.data() + i * 512_KiB, 256_KiB, 0},
                        [&](std::exception_ptr e) { ++(e ? failed : succeeded); });
        queue->drain();
        EXPECT_EQ(failed, 1);
        EXPECT_EQ(succeeded, 1);
      }
}

TEST_P(QueueTest, ABusyKernelIsAskedAgainThenBlockedOnThenGivenUp) {
  const File file = create("data", 64_KiB);
  int busy = 12;
  const auto queue =
      make({.block_size = 64_KiB, .depth = 2, .alter_result = [&](IoOp, uint64_t, int64_t result) {
              return busy-- > 0 ? int64_t{-EAGAIN} : result;
            }});
  submit(*queue, {IoOp::read, &file, memory_.data(), 64_KiB, 0}).get();
  EXPECT_EQ(queue->stats().retries, 12u);
  busy = 1000;
  EXPECT_THAT(error_of(ErrorKind::disk,
                       [&] {
                         submit(*queue, {IoOp::read, &file, memory_.data(), 64_KiB, 0}).get();
                       }),
              HasSubstr("EAGAIN"));
}

TEST_P(QueueTest, AnIoErrorIsRetriedOnceForReadsNeverForWritesAndSyncs) {
  const File file = create("data", 64_KiB);
  int errors = 1;
  const auto queue =
      make({.block_size = 64_KiB, .depth = 2, .alter_result = [&](IoOp, uint64_t, int64_t result) {
              return errors-- > 0 ? int64_t{-EIO} : result;
            }});
  submit(*queue, {IoOp::read, &file, memory_.data(), 64_KiB, 0}).get();
  errors = 2;
  EXPECT_THAT(error_of(ErrorKind::disk,
                       [&] {
                         submit(*queue, {IoOp::read, &file, memory_.data(), 64_KiB, 0}).get();
                       }),
              HasSubstr("EIO"));
  for (const IoOp op : {IoOp::write, IoOp::sync}) {
    errors = 1;
    EXPECT_THROW(submit(*queue, {op, &file, memory_.data(), 64_KiB, 0}).get(), base::Error);
    submit(*queue, {op, &file, memory_.data(), 64_KiB, 0}).get();
  }
}

TEST_P(QueueTest, NothingTransferredInsideTheFileIsAnError) {
  const File file = create("data", 64_KiB);
  bool nothing = true;
  const auto queue =
      make({.block_size = 64_KiB, .depth = 2, .alter_result = [&](IoOp, uint64_t, int64_t result) {
              return nothing ? 0 : result;
            }});
  EXPECT_THAT(error_of(ErrorKind::disk,
                       [&] {
                         submit(*queue, {IoOp::read, &file, memory_.data(), 64_KiB, 0}).get();
                       }),
              HasSubstr("truncated"));
  EXPECT_THROW(submit(*queue, {IoOp::write, &file, memory_.data(), 64_KiB, 0}).get(), base::Error);
  nothing = false;
  submit(*queue, {IoOp::write, &file, memory_.data(), 64_KiB, 0}).get();
}

using std::chrono::microseconds;
constexpr Scratch::On kDisk = Scratch::On::disk, kTmpfs = Scratch::On::tmpfs;
INSTANTIATE_TEST_SUITE_P(
    All, QueueTest,
    ::testing::Values(Backend{"threads", false, false, false, {}, kDisk, true},
                      Backend{"threads_page_cache", false, false, false, {}, kDisk, false},
                      Backend{"threads_tmpfs", false, false, false, {}, kTmpfs, true},
                      Backend{"uring", true, false, false, {}, kDisk, true},
                      Backend{"uring_registered", true, true, false, {}, kDisk, true},
                      Backend{"uring_page_cache", true, true, false, {}, kDisk, false},
                      Backend{"uring_tmpfs", true, true, false, {}, kTmpfs, true},
                      Backend{"faulty_pass_through", false, false, true, {}, kDisk, true},
                      Backend{"faulty_delayed", false, false, true, microseconds(300), kDisk, true},
                      Backend{"throttled", false, false, false, {}, kDisk, true, 2e9}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace sluice::io
