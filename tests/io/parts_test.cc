// The parts that the queues are made of.
#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <fstream>
#include <limits>
#include <vector>

#include "base/units.h"
#include "io/disk_queue.h"
#include "io/page_cache.h"
#include "io/registered_memory.h"
#include "io/system_error.h"
#include "io/transfer.h"
#include "io/uring_queue.h"
#include "tests/io/scratch.h"
#include "tests/paths.h"

namespace sluice::io {
namespace {

using base::ErrorKind;
using base::operator""_KiB;
using base::operator""_MiB;
using base::operator""_GiB;
using ::testing::HasSubstr;

// Sets SLUICE_IO for a scope.
class Environment {
 public:
  explicit Environment(const char* value) {
    if (const char* old = getenv("SLUICE_IO"); old != nullptr) old_ = old;
    setenv("SLUICE_IO", value, 1);
  }
  ~Environment() {
    if (old_)
      setenv("SLUICE_IO", old_->c_str(), 1);
    else
      unsetenv("SLUICE_IO");
  }

 private:
  std::optional<std::string> old_;
};

TEST(MakeQueue, TakesTheKindOrTheEnvironment) {
  EXPECT_THAT(make_queue(QueueKind::threads, {})->describe(), HasSubstr("threads"));
  {
    const Environment environment("threads");
    EXPECT_THAT(make_queue(QueueKind::automatic, {})->describe(), HasSubstr("threads"));
  }
  const Environment environment("floppy");
  EXPECT_THAT(error_of(ErrorKind::config, [] { make_queue(QueueKind::automatic, {}); }), HasSubstr("floppy"));
}

TEST(MakeQueue, PrefersIoUringWhereItWorks) {
  if (const UringStatus status = probe_uring(); !status.usable()) {
    EXPECT_THROW(make_queue(QueueKind::uring, {}), base::Error);
    GTEST_SKIP() << status.explanation();
  }
  const Environment environment("");
  EXPECT_THAT(make_queue(QueueKind::automatic, {})->describe(), HasSubstr("io_uring"));
}

TEST(UringStatus, ExplainsItself) {
  EXPECT_THAT((UringStatus{.error = EPERM, .step = "io_uring_setup", .disabled = 2}.explanation()),
              ::testing::AllOf(HasSubstr("io_uring_setup"), HasSubstr("EPERM"),
                               HasSubstr("kernel.io_uring_disabled is 2"), HasSubstr("sysctl")));
  EXPECT_THAT((UringStatus{.error = EPERM, .step = "x", .disabled = 0}.explanation()), HasSubstr("seccomp"));
  EXPECT_THAT((UringStatus{.error = ENOSYS, .step = "x"}.explanation()), HasSubstr("gVisor"));
}

TEST(RegisteredMemory, FindsTheBufferThatHoldsTheWholeRange) {
  RegisteredMemory memory;
  auto* const base = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);  // never touched
  const std::span<std::byte> regions[] = {{base + 8_GiB, 1_MiB}, {base, 2_GiB + 4_KiB}};
  memory.add(regions);
  EXPECT_EQ(memory.buffers().size(), 4u);  // 1 GiB, 1 GiB, 4 KiB and 1 MiB
  EXPECT_EQ(memory.bytes(), 2_GiB + 4_KiB + 1_MiB);
  EXPECT_EQ(memory.find(base, 1_GiB), 0);
  EXPECT_EQ(memory.find(base + 1_GiB, 4_KiB), 1);
  EXPECT_EQ(memory.find(base + 2_GiB, 4_KiB), 2);
  EXPECT_EQ(memory.find(base + 8_GiB + 4_KiB, 8_KiB), 3);
  EXPECT_EQ(memory.find(base + 1_GiB - 4_KiB, 8_KiB), std::nullopt);
  EXPECT_EQ(memory.find(base + 8_GiB + 1_MiB, 4_KiB), std::nullopt);
  EXPECT_EQ(memory.find(base - 4_KiB, 4_KiB), std::nullopt);
  EXPECT_EQ(memory.find(base + 4_GiB, 4_KiB), std::nullopt);
}

TEST(TransferBook, CutsCapsAndKeepsTheOrder) {
  const Scratch scratch;
  const File file = File::create(scratch / "data", 1_MiB);
  TransferBook book({.block_size = 64_KiB, .depth = 3});
  alignas(4096) static std::byte memory[256 << 10];
  book.add({IoOp::read, &file, memory, 160_KiB, 4_KiB}, nullptr);
  book.add({IoOp::read, &file, memory, 64_KiB, 512_KiB}, nullptr);
  const auto first = book.next(), second = book.next(), third = book.next();
  ASSERT_TRUE(first && second && third);
  EXPECT_EQ(first->offset, 4_KiB);
  EXPECT_EQ(second->offset, 68_KiB);
  EXPECT_EQ(third->bytes, 32_KiB);
  EXPECT_EQ(third->data, memory + 128_KiB);
  EXPECT_FALSE(book.next()) << "three in flight";
  EXPECT_EQ(book.finish(*second, nullptr), nullptr);
  EXPECT_EQ(book.finish(*first, nullptr), nullptr);
  EXPECT_EQ(book.finish(*third, nullptr), first->transfer);
  book.callback_returned();
  EXPECT_FALSE(book.idle());
  EXPECT_EQ(book.next()->offset, 512_KiB);
}

// Nothing is transferred: only what may be in flight is looked at. The file has no blocks, and the memory none either.
TEST(TransferBook, BytesInFlightStayBelowTheCapOfTheDevice) {
  const Scratch scratch;
  struct stat info {};
  ASSERT_EQ(stat(scratch.path().c_str(), &info), 0);
  const uint64_t cap = device_byte_cap(info.st_dev);
  if (cap == std::numeric_limits<uint64_t>::max()) GTEST_SKIP() << "this device has no request queue";
  const uint64_t bytes = 2 * base::round_up(cap, kAlignment);
  File::create(scratch / "data", kAlignment);
  std::filesystem::resize_file(scratch / "data", bytes);
  const File file = File::open(scratch / "data", OpenMode::read_write);
  const uint64_t block = std::max<uint64_t>(kAlignment, cap / 100 / kAlignment * kAlignment);
  TransferBook book({.block_size = block, .depth = 1024});
  book.add({IoOp::read, &file, reinterpret_cast<std::byte*>(uintptr_t{1} << 40), bytes, 0}, nullptr);
  std::vector<Piece> in_flight;
  uint64_t sum = 0;
  for (auto piece = book.next(); piece; piece = book.next()) {
    sum += piece->bytes;
    in_flight.push_back(std::move(*piece));
  }
  EXPECT_LE(sum, cap);
  EXPECT_GT(sum + block, cap);
  EXPECT_EQ(book.finish(in_flight.front(), nullptr), nullptr);
  EXPECT_TRUE(book.next()) << "room for one more";
  EXPECT_FALSE(book.next());

  TransferBook large({.block_size = base::round_up(cap, kAlignment) + kAlignment, .depth = 2});  // one piece may be larger than the cap
  large.add({IoOp::read, &file, reinterpret_cast<std::byte*>(uintptr_t{1} << 40), bytes, 0}, nullptr);
  EXPECT_TRUE(large.next());
  EXPECT_FALSE(large.next());
}

TEST(TransferBook, GivesUpTheRestOfAFailedRequest) {
  const Scratch scratch;
  const File file = File::create(scratch / "data", 1_MiB);
  TransferBook book({.block_size = 64_KiB, .depth = 2});
  alignas(4096) static std::byte memory[512 << 10];
  book.add({IoOp::read, &file, memory, 512_KiB, 0}, nullptr);
  const auto first = book.next(), second = book.next();
  const auto error = std::make_exception_ptr(base::Error(ErrorKind::disk, "broken"));
  EXPECT_EQ(book.finish(*first, error), nullptr) << "another piece is still in flight";
  EXPECT_FALSE(book.next());
  const auto transfer = book.finish(*second, nullptr);
  ASSERT_TRUE(transfer);
  EXPECT_EQ(transfer->error, error);
}

TEST(SystemError, FreeSpaceIsThatOfTheFileSystemEvenWhenTheFileHasNoNameAnyMore) {
  const Scratch scratch;
  const File file = File::create(scratch / "data", 64_KiB);
  std::filesystem::remove(file.path());
  EXPECT_GT(free_space(file.path()), 0u);
  EXPECT_GT(free_space("a-file-of-this-folder-that-is-not-there"), 0u);
  EXPECT_EQ(free_space("/no/such/folder"), 0u);
  EXPECT_THAT(errno_advice(ENOSPC, file.path(), 1_MiB), HasSubstr("need 1.00 MiB, have "));
  EXPECT_THAT(errno_advice(ENOSPC, file.path(), 0), ::testing::Not(HasSubstr("need")));
}

TEST(DropFromCache, TmpfsKeepsWhatPassesThroughIt) {
  const Scratch tmpfs(Scratch::On::tmpfs);
  EXPECT_FALSE(can_drop_from_cache(File::create(tmpfs / "data", 64_KiB)));
}

TEST(DeviceByteCap, IsHalfOfTheQueueOfTheDeviceOrNoLimit) {
  struct stat info {};
  ASSERT_EQ(stat("/dev/shm", &info), 0);
  EXPECT_EQ(device_byte_cap(info.st_dev), std::numeric_limits<uint64_t>::max());
  ASSERT_EQ(stat(binary_dir().c_str(), &info), 0);
  const std::filesystem::path block = "/sys/dev/block/" + std::to_string(major(info.st_dev)) + ":" + std::to_string(minor(info.st_dev));
  for (const auto& queue : {block / "queue", block / ".." / "queue"}) {
    uint64_t requests = 0, kilobytes = 0;
    std::ifstream(queue / "nr_requests") >> requests;
    std::ifstream(queue / "max_sectors_kb") >> kilobytes;
    if (requests == 0) continue;
    EXPECT_EQ(device_byte_cap(info.st_dev), requests * kilobytes * 512);
    return;
  }
  EXPECT_EQ(device_byte_cap(info.st_dev), std::numeric_limits<uint64_t>::max());
}

}  // namespace
}  // namespace sluice::io
