// Faults around each kind of queue.
#include "io/faulty_queue.h"

#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "base/arena.h"
#include "base/units.h"
#include "io/uring_queue.h"
#include "tests/io/scratch.h"

namespace sluice::io {
namespace {

using base::ErrorKind;
using base::operator""_KiB;
using base::operator""_MiB;
using Kind = FaultRule::Kind;

class FaultyQueueTest : public ::testing::TestWithParam<QueueKind> {
 protected:
  void SetUp() override {
    if (GetParam() != QueueKind::uring) return;
    if (const UringStatus status = probe_uring(); !status.usable()) GTEST_SKIP() << status.explanation();
  }
  FaultyQueueTest() : memory_(1_MiB, "the test"), file_(File::create(scratch_ / "data", 1_MiB)) {}

  FaultyQueue make(FaultyOptions options) {
    auto queue = make_queue(GetParam(), {.block_size = 64_KiB, .depth = 2});
    const std::span<std::byte> all = memory_.all();
    queue->register_memory(std::span(&all, 1));
    return FaultyQueue(std::move(queue), std::move(options));
  }
  void write(DiskQueue& queue, uint64_t seed) {
    fill_pattern(memory_.span(0, 256_KiB), seed, 0);
    submit(queue, {IoOp::write, &file_, memory_.data(), 256_KiB, 0}).get();
  }
  std::span<std::byte> read_back() {
    file_.read_at(0, memory_.span(512_KiB, 256_KiB));
    return memory_.span(512_KiB, 256_KiB);
  }
  static size_t bits_that_differ(std::span<const std::byte> data, uint64_t seed) {
    std::vector<std::byte> wanted(data.size());
    fill_pattern(wanted, seed, 0);
    size_t count = 0;
    for (size_t i = 0; i < data.size(); ++i)
      count += static_cast<size_t>(std::popcount(std::to_integer<unsigned>(data[i] ^ wanted[i])));
    return count;
  }

  Scratch scratch_;
  base::Arena memory_;
  File file_;
};

TEST_P(FaultyQueueTest, FailsTheNthRequestForEveryN) {
  for (const Kind kind : {Kind::io_error, Kind::no_space, Kind::short_then_error})
    for (uint64_t nth = 1; nth <= 5; ++nth) {
      FaultyQueue queue = make({.rules = {{.kind = kind, .at = nth}}});
      for (uint64_t i = 1; i <= 5; ++i) {
        const auto action = [&] { submit(queue, {IoOp::read, &file_, memory_.data(), 128_KiB, 0}).get(); };
        if (i == nth)
          EXPECT_THAT(error_of(ErrorKind::disk, action), ::testing::HasSubstr("injected"));
        else
          EXPECT_NO_THROW(action());
      }
      EXPECT_EQ(queue.injected(), 1u);
      EXPECT_EQ(queue.stats().failures, 1u);
    }
}

TEST_P(FaultyQueueTest, CountsOnlyWhatItsRuleIsAbout) {
  FaultyQueue queue = make({.rules = {{.op = IoOp::sync, .at = 2, .every = true}}});
  int failed = 0;
  for (int i = 0; i < 6; ++i) {
    write(queue, 1);
    try {
      submit(queue, {.op = IoOp::sync, .file = &file_}).get();
    } catch (const base::Error&) {
      ++failed;
    }
  }
  EXPECT_EQ(failed, 3);
  queue.set_rules({});
  submit(queue, {.op = IoOp::sync, .file = &file_}).get();
  submit(queue, {.op = IoOp::sync, .file = &file_}).get();
}

// Every second and every third request, for good.
TEST_P(FaultyQueueTest, FailsEveryNthRequestForEachOperation) {
  for (const Kind kind : {Kind::io_error, Kind::no_space, Kind::short_then_error})
    for (const IoOp op : {IoOp::read, IoOp::write, IoOp::sync})
      for (const uint64_t nth : {2, 3}) {
        FaultyQueue queue = make({.rules = {{.kind = kind, .op = op, .at = nth, .every = true}}});
        std::string outcome;
        for (int i = 0; i < 6; ++i) {
          try {
            submit(queue, {op, &file_, memory_.data(), op == IoOp::sync ? 0 : 128_KiB, 0}).get();
            outcome += '.';
          } catch (const base::Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::disk);
            outcome += 'x';
          }
        }
        EXPECT_EQ(outcome, nth == 2 ? ".x.x.x" : "..x..x");
      }
}

TEST_P(FaultyQueueTest, ShortWritesReachTheDiskInPart) {
  FaultyQueue queue = make({.rules = {{.kind = Kind::short_then_error, .at = 2}}});
  write(queue, 1);
  EXPECT_THROW(write(queue, 2), base::Error);
  const std::span<std::byte> back = read_back();
  EXPECT_TRUE(has_pattern(back.first(128_KiB), 2, 0));
  EXPECT_TRUE(has_pattern(back.subspan(128_KiB), 1, 128_KiB));
}

TEST_P(FaultyQueueTest, SilentFaultsAreSilent) {
  FaultyQueue queue = make({});
  write(queue, 1);
  queue.set_rules({{.kind = Kind::lost_write, .op = IoOp::write}});
  write(queue, 2);
  EXPECT_TRUE(has_pattern(read_back(), 1, 0));

  queue.set_rules({{.kind = Kind::bit_flip, .op = IoOp::write}});
  write(queue, 3);
  EXPECT_TRUE(has_pattern(memory_.span(0, 256_KiB), 3, 0)) << "the caller's memory is left alone";
  EXPECT_EQ(bits_that_differ(read_back(), 3), 1u);

  write(queue, 4);
  queue.set_rules({{.kind = Kind::bit_flip, .op = IoOp::read}});
  const std::span<std::byte> in = memory_.span(512_KiB, 256_KiB);
  submit(queue, {IoOp::read, &file_, in.data(), in.size(), 0}).get();
  EXPECT_EQ(bits_that_differ(in, 4), 1u);
}

TEST_P(FaultyQueueTest, DelaysReorder) {
  FaultyQueue queue = make({.max_delay = std::chrono::milliseconds(5), .seed = 3});
  std::mutex mutex;
  std::vector<int> order;
  for (int i = 0; i < 32; ++i)
    queue.submit({IoOp::read, &file_, memory_.data() + i * 4_KiB, 4_KiB, 0}, [&, i](std::exception_ptr) {
      const std::lock_guard lock(mutex);
      order.push_back(i);
    });
  queue.drain();
  EXPECT_EQ(order.size(), 32u);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

INSTANTIATE_TEST_SUITE_P(Queues, FaultyQueueTest, ::testing::Values(QueueKind::threads, QueueKind::uring),
                         [](const auto& queue) { return std::string(queue.param == QueueKind::uring ? "uring" : "threads"); });

}  // namespace
}  // namespace sluice::io
