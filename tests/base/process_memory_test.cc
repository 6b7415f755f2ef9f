#include "base/process_memory.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace sluice::base {
namespace {

TEST(ProcessMemory, FollowsWhatTheProcessTouchesAndLocks) {
  const ProcessMemory before = read_process_memory();
  EXPECT_GT(before.resident, 1u << 20);
  EXPECT_GE(before.resident_peak, before.resident);
  constexpr size_t kBytes = 64 << 20;
  std::vector<char> touched(kBytes, 1);
  const ProcessMemory during = read_process_memory();
  EXPECT_GE(during.resident, before.resident + kBytes / 10 * 9);
  constexpr size_t kLocked = 32 << 10;  // what any process may lock
  // Not mlock(): the sanitizers' own one does nothing.
  if (syscall(SYS_mlock, touched.data() + 8192, kLocked) != 0) return;
  EXPECT_GE(read_process_memory().locked, before.locked + kLocked);
  syscall(SYS_munlock, touched.data() + 8192, kLocked);
}

TEST(ProcessMemory, WithoutProcNothingIsKnown) {
  const ProcessMemory memory = read_process_memory("/nowhere");
  EXPECT_EQ(memory.resident, 0u);
  EXPECT_EQ(memory.page_cache, 0u);
}

}  // namespace
}  // namespace sluice::base
