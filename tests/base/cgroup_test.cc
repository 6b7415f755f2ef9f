#include "base/cgroup.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <string>

#include "tests/paths.h"

namespace sluice::base {
namespace {

namespace fs = std::filesystem;

// A made-up /proc and /sys.
class Cgroup : public ::testing::Test {
 protected:
  Cgroup() {
    std::string name = binary_dir() / "cgroup-test-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~Cgroup() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  fs::path root_;
};

TEST_F(Cgroup, NoneMeansNoLimit) {
  const CgroupLimits limits = read_cgroup_limits(root_);
  EXPECT_FALSE(limits.memory_limit || limits.memory_available || limits.cpus);
}

TEST_F(Cgroup, Version2TakesTheTightestGroupOnTheWayUp) {
  write("proc/self/cgroup", "0::/a/b");
  write("sys/fs/cgroup/a/memory.max", "1000000");
  write("sys/fs/cgroup/a/memory.current", "900000");
  write("sys/fs/cgroup/a/memory.stat", "anon 500000\ninactive_file 300000");
  write("sys/fs/cgroup/a/cpu.max", "150000 100000");
  write("sys/fs/cgroup/a/b/memory.max", "800000");
  write("sys/fs/cgroup/a/b/memory.current", "100000");
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000");
  const CgroupLimits limits = read_cgroup_limits(root_);
  EXPECT_EQ(limits.memory_limit, 800000u);
  EXPECT_EQ(limits.memory_available, 400000u) << "of group a: 1000000 - (900000 - 300000)";
  EXPECT_EQ(limits.cpus, 1.5);
}

TEST_F(Cgroup, Version2InAContainerThatSeesItsOwnGroupAsTheRoot) {
  write("proc/self/cgroup", "0::/system.slice/docker-1234.scope");
  write("sys/fs/cgroup/memory.max", "5000");
  write("sys/fs/cgroup/memory.current", "6000");
  const CgroupLimits limits = read_cgroup_limits(root_);
  EXPECT_EQ(limits.memory_limit, 5000u);
  EXPECT_EQ(limits.memory_available, 0u);
}

TEST_F(Cgroup, Version1) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/job");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000000");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "500000");
  write("sys/fs/cgroup/memory/job/memory.stat", "cache 1\ntotal_inactive_file 100000");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  const CgroupLimits limits = read_cgroup_limits(root_);
  EXPECT_EQ(limits.memory_limit, 2000000u);
  EXPECT_EQ(limits.memory_available, 1600000u);
  EXPECT_EQ(limits.cpus, 2.5);
}

TEST_F(Cgroup, NonsenseIsNoLimit) {
  write("proc/self/cgroup", "\n::\n0::/../../etc\nx");
  write("sys/fs/cgroup/memory.max", "lots");
  write("sys/fs/cgroup/cpu.max", "");
  const CgroupLimits limits = read_cgroup_limits(root_);
  EXPECT_FALSE(limits.memory_limit || limits.cpus);
}

}  // namespace
}  // namespace sluice::base
