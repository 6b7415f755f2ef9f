#include "io/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "tests/io/scratch.h"

namespace sluice::io {
namespace {

using base::ErrorKind;
using base::operator""_KiB;
using base::operator""_MiB;
using ::testing::HasSubstr;

std::vector<std::byte> bytes_of(size_t count, unsigned seed) {
  std::vector<std::byte> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = static_cast<std::byte>((i * 31 + seed * 7 + i / 251) & 0xff);
  return data;
}

struct Place {
  const char* name;
  Scratch::On on;
  bool direct;
};
void PrintTo(const Place& place, std::ostream* out) {
  *out << place.name;
}

class FileTest : public ::testing::TestWithParam<Place> {
 protected:
  Scratch scratch_{GetParam().on};
  FileOptions options_{.direct = GetParam().direct};
};

TEST_P(FileTest, CreateAllocatesInFullAndReadsAsZeros) {
  const File file = File::create(scratch_ / "a", 3_MiB, options_);
  EXPECT_EQ(file.size(), 3_MiB);
  struct stat info {};
  ASSERT_EQ(fstat(file.fd(), &info), 0);
  EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, 3_MiB);
  std::vector<std::byte> data(3_MiB, std::byte{1});
  file.read_at(0, data);
  EXPECT_EQ(data, std::vector<std::byte>(3_MiB));
}

TEST_P(FileTest, CreateRefusesAnExistingFileAndLeavesItAlone) {
  std::ofstream(scratch_ / "a") << "precious";
  EXPECT_THAT(error_of(ErrorKind::disk, [&] { File::create(scratch_ / "a", 4_KiB, options_); }),
              HasSubstr("EEXIST"));
  std::string text;
  std::ifstream(scratch_ / "a") >> text;
  EXPECT_EQ(text, "precious");
}

TEST_P(FileTest, TooLargeAFileSaysNeedAndHaveAndLeavesNothing) {
  // 2^50 bytes: more than free on any disk that runs this; the kernel's or the file system's refusal.
  const std::string text =
      error_of(ErrorKind::disk, [&] { File::create(scratch_ / "a", uint64_t{1} << 50, options_); });
  EXPECT_THAT(text, HasSubstr("1.00 PiB"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "a"));
}

TEST_P(FileTest, ReadsAndWritesAtAnyAlignment) {
  const File file = File::create(scratch_ / "a", 3_MiB, options_);
  std::vector<std::byte> model(3_MiB);
  unsigned seed = 0;
  for (const size_t count : {1ul, 7ul, 4096ul, 4097ul, 8191ul, 1048577ul})
    for (const uint64_t offset : {0ul, 1ul, 4095ul, 4096ul, 1048570ul}) {
      const std::vector<std::byte> data = bytes_of(count, ++seed);
      file.write_at(offset, data);
      std::copy(data.begin(), data.end(), model.begin() + static_cast<ptrdiff_t>(offset));
      std::vector<std::byte> back(count);
      file.read_at(offset, back);
      EXPECT_EQ(back, data) << count << " at " << offset;
    }
  std::vector<std::byte> all(3_MiB);
  file.read_at(0, all);
  EXPECT_EQ(all, model);  // nothing beside what was written
}

TEST_P(FileTest, SizesThatAreNoMultipleOfThePageWork) {
  const std::vector<std::byte> data = bytes_of(10001, 1);
  {
    const File file = File::create(scratch_ / "a", data.size(), options_);
    file.write_at(0, data);
    file.sync();
    EXPECT_EQ(file.size(), data.size());
  }
  for (const OpenMode mode : {OpenMode::read, OpenMode::read_write}) {
    const File file = File::open(scratch_ / "a", mode, options_);
    std::vector<std::byte> back(data.size());
    file.read_at(0, back);
    EXPECT_EQ(back, data);
    std::vector<std::byte> tail(5);
    file.read_at(9996, tail);
    EXPECT_TRUE(std::equal(tail.begin(), tail.end(), data.begin() + 9996));
    EXPECT_THAT(error_of(ErrorKind::disk, [&] { file.read_at(9997, tail); }), HasSubstr("too short"));
    EXPECT_THROW(file.read_at(20000, tail), base::Error);
  }
}

TEST_P(FileTest, WritingPastTheEndIsAnError) {
  const File file = File::create(scratch_ / "a", 8_KiB, options_);
  EXPECT_THROW(file.write_at(8191, bytes_of(2, 1)), base::Error);
  EXPECT_THROW(file.write_at(~uint64_t{0} - 1, bytes_of(2, 1)), base::Error);
  EXPECT_EQ(file.size(), 8_KiB);
}

TEST_P(FileTest, WritersOfOnePageDoNotLoseEachOthersBytes) {
  const File file = File::create(scratch_ / "a", 4_KiB, options_);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 32; ++i)
        file.write_at((i * 4 + t) * 32, std::vector<std::byte>(32, static_cast<std::byte>(t + 1)));
    });
  for (std::thread& thread : threads) thread.join();
  std::vector<std::byte> all(4_KiB);
  file.read_at(0, all);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<std::byte>(i / 32 % 4 + 1)) << i;
}

TEST_P(FileTest, OneExclusiveLockOrManySharedOnes) {
  File::create(scratch_ / "a", 4_KiB, options_);
  const auto open = [&] { return File::open(scratch_ / "a", OpenMode::read_write, options_); };
  {
    const File first = open(), second = open();
    EXPECT_TRUE(first.try_lock(LockMode::exclusive));
    EXPECT_FALSE(second.try_lock(LockMode::exclusive));
    EXPECT_FALSE(second.try_lock(LockMode::shared));
  }
  const File first = open(), second = open();
  EXPECT_TRUE(first.try_lock(LockMode::shared));
  EXPECT_TRUE(second.try_lock(LockMode::shared));
  EXPECT_FALSE(second.try_lock(LockMode::exclusive));
}

INSTANTIATE_TEST_SUITE_P(All, FileTest,
                         ::testing::Values(Place{"disk", Scratch::On::disk, true},
                                           Place{"page_cache", Scratch::On::disk, false},
                                           Place{"tmpfs", Scratch::On::tmpfs, true}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(File, TellsWhetherTransfersAreDirect) {
  const Scratch disk(Scratch::On::disk), tmpfs(Scratch::On::tmpfs);
  const File on_tmpfs = File::create(tmpfs / "a", 4_KiB);
  EXPECT_FALSE(on_tmpfs.direct());
  EXPECT_EQ(fcntl(on_tmpfs.fd(), F_GETFL) & O_DIRECT, 0);
  const File odd = File::create(disk / "odd", 100);
  EXPECT_FALSE(odd.direct());
  const File even = File::create(disk / "even", 4_KiB);
  EXPECT_EQ(even.direct(), (fcntl(even.fd(), F_GETFL) & O_DIRECT) != 0);
  EXPECT_LE(even.direct_alignment(), kAlignment);
}

TEST(File, MovesItsDescriptor) {
  const Scratch scratch;
  File first = File::create(scratch / "a", 4_KiB);
  const int fd = first.fd();
  File second = std::move(first);
  EXPECT_FALSE(first.valid());
  EXPECT_EQ(second.fd(), fd);
  second = File::create(scratch / "b", 4_KiB);
  EXPECT_EQ(fcntl(fd, F_GETFD), -1) << "the old one is closed";
  EXPECT_EQ(second.link_count(), 1u);
  link_file(scratch / "b", scratch / "c");
  EXPECT_EQ(second.link_count(), 2u);
}

TEST(File, MissingOnesAreNamed) {
  const Scratch scratch;
  EXPECT_THAT(error_of(ErrorKind::disk, [&] { File::open(scratch / "none", OpenMode::read); }),
              ::testing::AllOf(HasSubstr("none"), HasSubstr("ENOENT")));
  EXPECT_THROW(sync_directory(scratch / "none"), base::Error);
  EXPECT_THROW(rename_path(scratch / "none", scratch / "other"), base::Error);
  EXPECT_THROW(make_directory(scratch / "none/below"), base::Error);
  remove_tree(scratch / "none");
}

// A limit of the process stands in for a full disk: the kernel refuses in the middle of a write.
TEST(File, AFullDiskInTheMiddleOfAWriteIsAnError) {
  const Scratch scratch;
  const File file = File::create(scratch / "a", 1_MiB);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 512_KiB;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string text =
      error_of(ErrorKind::disk, [&] { file.write_at(256_KiB, std::vector<std::byte>(512_KiB)); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(text, HasSubstr("EFBIG"));
}

}  // namespace
}  // namespace sluice::io
