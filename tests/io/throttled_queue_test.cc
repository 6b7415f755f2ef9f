#include "io/throttled_queue.h"

#include <gmock/gmock.h>

#include <chrono>
#include <vector>

#include "base/arena.h"
#include "base/units.h"
#include "io/thread_queue.h"
#include "tests/io/scratch.h"

namespace sluice::io {
namespace {

using base::operator""_KiB;
using base::operator""_MiB;
using Clock = std::chrono::steady_clock;

class ThrottledQueueTest : public testing::Test {
 protected:
  ThrottledQueueTest() : file_(File::create(scratch_.path() / "data", 4_MiB)), memory_(4_MiB, "the test") {}

  IoRequest piece(IoOp op, size_t n) { return {op, &file_, memory_.data() + n * 256_KiB, 256_KiB, n * 256_KiB}; }
  static double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

  Scratch scratch_;
  File file_;
  base::Arena memory_;
};

TEST_F(ThrottledQueueTest, ReadsAndWritesTakeTheTimeOfTheirOwnLink) {
  const auto queue = make_throttled_queue(make_thread_queue({}), {.read = 20e6, .write = 10e6});
  const auto begin = Clock::now();
  std::vector<std::future<void>> waits;
  for (size_t n = 0; n < 4; ++n) waits.push_back(submit(*queue, piece(IoOp::write, n)));
  for (size_t n = 4; n < 8; ++n) waits.push_back(submit(*queue, piece(IoOp::read, n)));
  EXPECT_LT(seconds_since(begin), 0.05);  // nobody waits in submit
  for (size_t n = 4; n < 8; ++n) waits[n].get();
  const double read = seconds_since(begin);
  for (size_t n = 0; n < 4; ++n) waits[n].get();
  EXPECT_GE(read, 0.052);                   // 1 MiB at 20 MB/s
  EXPECT_GE(seconds_since(begin), 0.104);   // beside 1 MiB at 10 MB/s
}

TEST_F(ThrottledQueueTest, WithoutALimitNothingIsHeldBack) {
  const auto queue = make_throttled_queue(make_thread_queue({}), {.read = 0, .write = 1e6});
  const auto begin = Clock::now();
  submit(*queue, piece(IoOp::read, 0)).get();
  submit(*queue, {IoOp::sync, &file_}).get();
  EXPECT_LT(seconds_since(begin), 0.2);  // a write of this size would take 0.26
}

TEST_F(ThrottledQueueTest, AnErrorOfTheInnerQueueArrives) {
  QueueOptions options;
  options.alter_result = [](IoOp, uint64_t, int64_t) -> int64_t { return -EROFS; };
  const auto queue = make_throttled_queue(make_thread_queue(options), {.read = 50e6, .write = 50e6});
  EXPECT_THROW(submit(*queue, piece(IoOp::write, 0)).get(), base::Error);
}

}  // namespace
}  // namespace sluice::io
