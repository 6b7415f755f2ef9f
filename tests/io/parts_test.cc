// The parts that the queues are made of.
#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <limits>

#include "base/units.h"
#include "io/disk_queue.h"
#include "io/registered_memory.h"
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

TEST(DeviceByteCap, IsHalfOfTheQueueOfTheDeviceOrNoLimit) {
  struct stat info {};
  ASSERT_EQ(stat("/dev/shm", &info), 0);
  EXPECT_EQ(device_byte_cap(info.st_dev), std::numeric_limits<uint64_t>::max());
  ASSERT_EQ(stat(binary_dir().c_str(), &info), 0);
  EXPECT_GE(device_byte_cap(info.st_dev), 64_KiB);
}

}  // namespace
}  // namespace sluice::io
