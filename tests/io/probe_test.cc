#include "io/probe.h"

#include <gmock/gmock.h>

#include "tests/io/scratch.h"

namespace sluice::io {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMounts =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "30 22 0:25 / /data rw - nfs4 server:/export rw\n"
    "31 30 0:26 / /data/fast\\040disk rw shared:7 master:1 - xfs /dev/nvme0n1 rw\n"
    "32 22 0:27 / /dev/shm rw - tmpfs tmpfs rw\n"
    "33 22 0:28 / /remote rw - fuse.sshfs me@there rw\n"
    "34 33 0:29 / /remote rw - btrfs /dev/sdb rw\n"
    "broken line\n";

TEST(FindMount, TakesTheInnermostAndTheLast) {
  const auto type_at = [](const char* path) { return find_mount(kMounts, path).type; };
  EXPECT_EQ(type_at("/home"), "ext4");
  EXPECT_EQ(type_at("/database"), "ext4");
  EXPECT_EQ(type_at("/data"), "nfs4");
  EXPECT_EQ(type_at("/data/x"), "nfs4");
  EXPECT_EQ(type_at("/data/fast disk/run"), "xfs");
  EXPECT_EQ(type_at("/remote/x"), "btrfs");
}

TEST(FindMount, KnowsWhatIsLocal) {
  EXPECT_EQ(find_mount(kMounts, "/").locality, Locality::local);
  EXPECT_EQ(find_mount(kMounts, "/data/x").locality, Locality::network);
  EXPECT_EQ(find_mount(kMounts, "/dev/shm").locality, Locality::memory);
  EXPECT_EQ(find_mount("1 0 0:1 / / rw - fuse.sshfs a b", "/x").locality, Locality::network);
}

TEST(ProbeDirectory, MeasuresAndLeavesNothingBehind) {
  const Scratch scratch;
  const DirectoryReport report = probe_directory(scratch.path(), {.seconds = 0.02, .file_bytes = 16 << 20});
  EXPECT_EQ(report.error, "");
  EXPECT_FALSE(report.file_system.type.empty());
  EXPECT_GT(report.file_system.free_bytes, 0u);
  EXPECT_EQ(report.direct, report.direct_alignment != 0);
  ASSERT_TRUE(report.rate) << report.rate_note;
  EXPECT_GT(report.rate->read, 1e6);
  EXPECT_GT(report.rate->write, 1e6);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(ProbeDirectory, TmpfsIsMemoryWithoutDirectIo) {
  const Scratch scratch(Scratch::On::tmpfs);
  const DirectoryReport report = probe_directory(scratch.path(), {.seconds = 0});
  EXPECT_EQ(report.file_system.locality, Locality::memory);
  EXPECT_FALSE(report.direct);
  EXPECT_FALSE(report.drops_from_cache);
  EXPECT_FALSE(report.rate);
}

TEST(ProbeDirectory, ReportsWhatIsWrong) {
  const Scratch scratch;
  EXPECT_THAT(probe_directory(scratch / "none").error, HasSubstr("No such file"));
  EXPECT_NE(probe_directory("/proc").error, "");
}

TEST(Probes, ArePlausible) {
  const MemlockReport memlock = probe_memlock();
  EXPECT_LE(memlock.soft.value_or(0), memlock.hard.value_or(~uint64_t{0}));
  EXPECT_THAT(probe_huge_pages().transparent, ::testing::AnyOf("always", "madvise", "never", ""));
}

}  // namespace
}  // namespace sluice::io
