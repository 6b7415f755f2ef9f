// Several drives behind one queue, and how fast drives are.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/arena.h"
#include "base/units.h"
#include "io/drive_queues.h"
#include "io/drive_rates.h"
#include "io/thread_queue.h"
#include "io/throttled_queue.h"
#include "tests/io/scratch.h"

namespace sluice::io {
namespace {

using base::operator""_KiB;
using base::operator""_MiB;

dev_t drive_of(const std::filesystem::path& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  return info.st_dev;
}

// Two drives, a file on the second; the first is for files of nowhere.
struct TwoDrives {
  explicit TwoDrives(const Throttle& elsewhere = {}) {
    std::vector<DriveQueue> drives;
    drives.push_back({drive_of(scratch.path()) + 1, make_throttled_queue(make_thread_queue({}), elsewhere)});
    drives.push_back({drive_of(scratch.path()), make_thread_queue({})});
    first = drives[0].queue.get();
    second = drives[1].queue.get();
    queue = make_drive_queues(std::move(drives));
  }
  IoRequest piece(IoOp op, size_t n) { return {op, &file, memory.data() + n * 64_KiB, 64_KiB, n * 64_KiB}; }

  const Scratch scratch;
  const File file = File::create(scratch.path() / "data", 1_MiB);
  const base::Arena memory{1_MiB, "the test"};
  DiskQueue* first = nullptr;
  DiskQueue* second = nullptr;
  std::unique_ptr<DiskQueue> queue;
};

TEST(DriveQueues, ARequestGoesToTheDriveOfItsFile) {
  TwoDrives drives;
  submit(*drives.queue, drives.piece(IoOp::write, 0)).get();
  submit(*drives.queue, drives.piece(IoOp::read, 0)).get();
  submit(*drives.queue, {IoOp::sync, &drives.file}).get();
  drives.queue->drain();
  EXPECT_EQ(drives.second->stats().requests, 3u);
  EXPECT_EQ(drives.first->stats().requests, 0u);
  EXPECT_EQ(drives.queue->stats().bytes_read, 64_KiB);
  EXPECT_EQ(drives.queue->stats().bytes_written, 64_KiB);
}

TEST(DriveQueues, AFileOnNoneOfThemIsTheFirstOnes) {
  const Scratch scratch;
  std::vector<DriveQueue> one;
  one.push_back({drive_of(scratch.path()) + 1, make_thread_queue({})});
  const auto queue = make_drive_queues(std::move(one));
  const File file = File::create(scratch.path() / "data", 64_KiB);
  const base::Arena memory(64_KiB, "the test");
  submit(*queue, {IoOp::write, &file, memory.data(), 64_KiB, 0}).get();
  EXPECT_EQ(queue->stats().bytes_written, 64_KiB);
}

TEST(DriveQueues, SaysWhatEachOfThemIs) {
  const TwoDrives drives;
  EXPECT_EQ(drives.queue->describe(),
            "2 drives, with 8 threads with pread and pwrite, throttled: read as it comes, write as it comes; 8 threads with pread and pwrite");
}

TEST(DriveQueues, AreOfOneKindAndOneDriveNeedsNone) {
  EXPECT_EQ(make_queue_for({}, QueueKind::threads, {})->describe(), make_thread_queue({})->describe());
  EXPECT_EQ(make_queue_for({1}, QueueKind::threads, {})->describe(), make_thread_queue({})->describe());
  EXPECT_EQ(make_queue_for({1, 2}, QueueKind::threads, {.depth = 2})->describe(), "2 drives, each with 2 threads with pread and pwrite");
}

TEST(DriveQueues, RefusesWhatAnyQueueRefuses) {
  TwoDrives drives;
  EXPECT_ANY_THROW(drives.queue->submit({}, [](const std::exception_ptr&) {}));
  EXPECT_ANY_THROW(drives.queue->submit({IoOp::read, &drives.file, drives.memory.data() + 1, 4096, 0}, [](const std::exception_ptr&) {}));
  drives.queue->drain();
}

// The second drive's completion hands the next request to the first, when a drain may already have found that one idle.
TEST(DriveQueues, DrainSeesWhatACompletionHandsToAnotherDrive) {
  const Scratch here, there{Scratch::On::tmpfs};
  if (drive_of(here.path()) == drive_of(there.path())) GTEST_SKIP() << "needs two file systems";
  std::vector<DriveQueue> drives;
  for (const auto& path : {here.path(), there.path()}) drives.push_back({drive_of(path), make_thread_queue({})});
  const auto queue = make_drive_queues(std::move(drives));
  const File files[] = {File::create(here.path() / "data", 64_KiB), File::create(there.path() / "data", 64_KiB)};
  const base::Arena memory(64_KiB, "the test");
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> done = 0;
    std::function<void(int)> go = [&](int n) {
      queue->submit({IoOp::write, &files[n % 2], memory.data(), 64_KiB, 0}, [&, n](const std::exception_ptr& error) {
        EXPECT_FALSE(error);
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        ++done;
        if (n < 6) go(n + 1);
      });
    };
    go(1);
    queue->drain();
    EXPECT_EQ(done, 6);
  }
}

TEST(DriveQueues, ASlowDriveHoldsUpNoOther) {
  const Scratch slow, fast{Scratch::On::tmpfs};
  if (drive_of(slow.path()) == drive_of(fast.path())) GTEST_SKIP() << "needs two file systems";
  std::vector<DriveQueue> drives;
  drives.push_back({drive_of(slow.path()), make_throttled_queue(make_thread_queue({}), {.read = 0, .write = 1e6})});
  drives.push_back({drive_of(fast.path()), make_thread_queue({})});
  const auto queue = make_drive_queues(std::move(drives));
  const File slow_file = File::create(slow.path() / "data", 256_KiB), fast_file = File::create(fast.path() / "data", 256_KiB);
  const base::Arena memory(256_KiB, "the test");
  auto late = submit(*queue, {IoOp::write, &slow_file, memory.data(), 256_KiB, 0});  // a quarter of a second
  submit(*queue, {IoOp::write, &fast_file, memory.data(), 256_KiB, 0}).get();
  EXPECT_EQ(late.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  late.get();
}

TEST(DriveQueues, EachFileSystemIsOneDrive) {
  const Scratch scratch;
  const std::filesystem::path a = scratch.path() / "a", b = scratch.path() / "b";
  std::filesystem::create_directory(a);
  std::filesystem::create_directory(b);
  EXPECT_THAT(drives_of({a, b, scratch.path() / "none"}), testing::ElementsAre(drive_of(a)));
  EXPECT_THAT(drives_of({}), testing::IsEmpty());
  if (drive_of("/dev/shm") == drive_of(a)) GTEST_SKIP() << "needs two file systems";
  EXPECT_THAT(drives_of({a, "/dev/shm", b}), testing::ElementsAre(drive_of(a), drive_of("/dev/shm")));
}

TEST(DiskBurst, GoesRoundWhatItHasFilled) {
  const Scratch scratch;
  const File file = File::create(scratch.path() / "data", 1_MiB);
  DiskBurst burst(file, {.block_size = 64_KiB, .depth = 2});
  burst.fill(0);  // one block
  burst.run_bytes(IoOp::write, 8 * 64_KiB);
  std::vector<std::byte> content(1_MiB);
  file.read_at(0, content);
  const auto is_zero = [](std::byte b) { return b == std::byte(0); };
  EXPECT_FALSE(std::all_of(content.begin(), content.begin() + 64_KiB, is_zero));
  EXPECT_TRUE(std::all_of(content.begin() + 64_KiB, content.end(), is_zero));
}

TEST(DiskBurst, FillsNoMoreThanTheFile) {
  const Scratch scratch;
  const File file = File::create(scratch.path() / "data", 1_MiB);
  DiskBurst burst(file, {.block_size = 64_KiB, .depth = 4});
  burst.fill(3600);
  std::vector<std::byte> content(1_MiB);
  file.read_at(0, content);
  for (size_t block = 0; block < 16; ++block)
    EXPECT_NE(std::memcmp(content.data() + block * 64_KiB, std::vector<std::byte>(64_KiB).data(), 64_KiB), 0) << block;
}

TEST(DriveRates, OfSeveralAtOnceLeavingNothingBehind) {
  const Scratch a, b;
  const std::vector<DiskProfile> found = measure_drives({a.path(), b.path()}, 0.02);
  ASSERT_EQ(found.size(), 2u);
  for (const DiskProfile& drive : found) {
    EXPECT_GT(drive.read, 0);
    EXPECT_GT(drive.write, 0);
    EXPECT_GT(drive.mixed, 0);
    EXPECT_GE(drive.flush, 0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(a.path()));
  EXPECT_TRUE(std::filesystem::is_empty(b.path()));
}

}  // namespace
}  // namespace sluice::io
