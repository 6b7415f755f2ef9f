#include "io/timed_queue.h"

#include <gmock/gmock.h>

#include <vector>

#include "base/arena.h"
#include "base/units.h"
#include "io/thread_queue.h"
#include "io/throttled_queue.h"
#include "tests/io/scratch.h"

namespace sluice::io {
namespace {

using base::operator""_KiB;
using base::operator""_MiB;

uint64_t count(const QueueTimes& times) {
  uint64_t all = 0;
  for (const uint64_t n : times.latency) all += n;
  return all;
}

TEST(QueueTimes, PercentilesAreAtMostAFifthTooLong) {
  QueueTimes times;
  EXPECT_EQ(times.percentile(99), 0);
  for (int i = 1; i <= 1000; ++i) times.add(i * 1e-3);
  for (const double percent : {1.0, 50.0, 99.0, 100.0}) {
    EXPECT_GE(times.percentile(percent), percent * 1e-2 * 0.999) << percent;
    EXPECT_LE(times.percentile(percent), percent * 1e-2 * 1.2) << percent;
  }
  QueueTimes later = times;
  later.add(1e9);  // longer than any bucket
  later.add(0);
  EXPECT_EQ(count(later - times), 2u);
}

TEST(TimedQueue, TellsLatencyAndDepthOfEachDirection) {
  const Scratch scratch;
  const File file = File::create(scratch.path() / "data", 4_MiB);
  const base::Arena memory(4_MiB, "the test");
  // 256 KiB take 12.8 ms on the link; four at once wait for each other.
  const auto queue = make_timed_queue(make_throttled_queue(make_thread_queue({}), {.read = 0, .write = 20.48e6}));
  const auto piece = [&](IoOp op, size_t n) { return IoRequest{op, &file, memory.data() + n * 256_KiB, 256_KiB, n * 256_KiB}; };
  std::vector<std::future<void>> waits;
  for (size_t n = 0; n < 4; ++n) waits.push_back(submit(*queue, piece(IoOp::write, n)));
  for (auto& wait : waits) wait.get();
  submit(*queue, {IoOp::sync, &file}).get();
  queue->drain();
  const QueueStats stats = queue->stats();
  EXPECT_EQ(stats.bytes_written, 1_MiB);
  EXPECT_EQ(count(stats.writes), 4u);
  EXPECT_EQ(count(stats.reads), 0u);
  EXPECT_EQ(stats.reads.busy, 0);
  // The first may begin a little before the clock of the queue does.
  EXPECT_GE(stats.writes.busy, 0.045);
  EXPECT_GE(stats.writes.in_flight, 0.115);  // 1 + 2 + 3 + 4 times 12.8 ms, less that
  EXPECT_GT(stats.writes.depth(), 1.0);
  EXPECT_LE(stats.writes.depth(), 4.0);
  EXPECT_GE(stats.writes.percentile(99), 0.045);
}

TEST(TimedQueue, ARefusedRequestIsNotInFlight) {
  const Scratch scratch;
  const File file = File::create(scratch.path() / "data", 1_MiB);
  const base::Arena memory(1_MiB, "the test");
  const auto queue = make_timed_queue(make_thread_queue({}));
  EXPECT_THROW(queue->submit({IoOp::read, &file, memory.data() + 1, 4096, 0}, [](std::exception_ptr) {}), base::Error);
  const double busy = queue->stats().reads.busy;
  EXPECT_EQ(queue->stats().reads.busy, busy);  // the clock stands still
  EXPECT_EQ(count(queue->stats().reads), 0u);
}

}  // namespace
}  // namespace sluice::io
