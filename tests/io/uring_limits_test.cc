// What becomes of a queue where the system limits or refuses io_uring. Each case runs in a process of its
// own, because what it gives up cannot be taken back.
#include <gmock/gmock.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/arena.h"
#include "base/units.h"
#include "io/disk_queue.h"
#include "io/drive_queues.h"
#include "io/uring_queue.h"
#include "tests/io/scratch.h"

namespace sluice::io {
namespace {

using base::operator""_KiB;
using base::operator""_MiB;

void give_up_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2]{};
  if (syscall(SYS_capset, &header, none) != 0) _exit(90);
}

// The system call fails with this error from now on, in this thread and those that it starts.
void refuse(uint32_t call, uint32_t error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    _exit(91);
}

// As under Docker's default filter.
void refuse_io_uring() {
  refuse(SYS_io_uring_setup, EPERM);
}

void limit_locked_memory(rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) _exit(92);
}

// The log of this process from now on.
class Log {
 public:
  Log() { spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out_))); }
  ~Log() { spdlog::set_default_logger(std::make_shared<spdlog::logger>("none")); }
  // Exactly so many lines, all these words in each.
  bool has(int lines, const std::vector<std::string>& words) const {
    std::istringstream in(out_.str());
    for (std::string line; std::getline(in, line); --lines)
      for (const std::string& word : words)
        if (line.find(word) == std::string::npos) return false;
    return lines == 0;
  }

 private:
  std::ostringstream out_;
};

bool transfers(DiskQueue& queue, const base::Arena& memory) {
  const Scratch scratch;
  const File file = File::create(scratch / "data", 1_MiB);
  fill_pattern(memory.span(0, 1_MiB), 5, 0);
  submit(queue, {IoOp::write, &file, memory.data(), 1_MiB, 0}).get();
  submit(queue, {IoOp::read, &file, memory.data() + 1_MiB, 1_MiB, 0}).get();
  return has_pattern(memory.span(1_MiB, 1_MiB), 5, 0);
}

// Ends the process: 0 when the queue transfers, describes itself so and has logged so; 1, 2 or 3 when not.
[[noreturn]] void exit_with_queue(DiskQueue& queue, const base::Arena& memory, const std::string& description, bool logged) {
  const bool good = transfers(queue, memory), described = queue.describe().find(description) != std::string::npos;
  _exit(!good ? 1 : !described ? 2 : !logged ? 3 : 0);
}

[[noreturn]] void exit_with_error(base::ErrorKind kind, const std::function<void()>& action) {
  try {
    action();
  } catch (const base::Error& error) {
    _exit(error.kind() == kind ? 0 : 2);
  }
  _exit(1);
}

// Locked memory is counted per user, and rings of processes that have ended go away late: other tests may hold it for a moment.
std::unique_ptr<DiskQueue> patiently(const std::function<std::unique_ptr<DiskQueue>()>& make) {
  for (int tries = 0;; ++tries) {
    try {
      return make();
    } catch (const base::Error&) {
      if (tries == 200) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

std::unique_ptr<DiskQueue> patient_queue(const QueueOptions& options) {
  return patiently([&] { return make_uring_queue(options); });
}

void register_all(DiskQueue& queue, const base::Arena& memory) {
  const std::span<std::byte> all = memory.all();
  queue.register_memory(std::span(&all, 1));
}

class UringLimitsDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (const UringStatus status = probe_uring(); !status.usable()) GTEST_SKIP() << status.explanation();
  }
};

TEST_F(UringLimitsDeathTest, TooLittleLockableMemoryLeavesPlainBuffersAndALine) {
  const auto run = [] {
    limit_locked_memory(256_KiB, 256_KiB);
    give_up_capabilities();
    const Log log;
    const base::Arena memory(64_MiB, "the test");
    const auto queue = patient_queue({});
    register_all(*queue, memory);
    exit_with_queue(*queue, memory, "plain buffers", log.has(1, {"register 64.0 MiB", "ENOMEM", "`ulimit -l` is 256 KiB", "plain buffers"}));
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

TEST_F(UringLimitsDeathTest, StrictMakesThatAnError) {
  const auto run = [] {
    limit_locked_memory(256_KiB, 256_KiB);
    give_up_capabilities();
    const base::Arena memory(64_MiB, "the test");
    const auto queue = patient_queue({.strict = true});
    exit_with_error(base::ErrorKind::host_memory, [&] { register_all(*queue, memory); });
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

TEST_F(UringLimitsDeathTest, TheSoftLimitIsRaised) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  if (limit.rlim_max < 4_MiB) GTEST_SKIP() << "this user may not lock enough memory";
  const auto run = [hard = limit.rlim_max] {
    limit_locked_memory(256_KiB, hard);
    give_up_capabilities();
    const Log log;
    const base::Arena memory(2_MiB, "the test");
    const auto queue = patient_queue({});
    register_all(*queue, memory);
    exit_with_queue(*queue, memory, "registered buffers", log.has(0, {}));
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

// Newer kernels count the ring itself: a soft limit that holds none is raised before the ring is given up.
TEST_F(UringLimitsDeathTest, TheSoftLimitIsRaisedForTheRingItself) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  if (limit.rlim_max < 4_MiB) GTEST_SKIP() << "this user may not lock enough memory";
  const auto run = [hard = limit.rlim_max] {
    limit_locked_memory(0, hard);
    give_up_capabilities();
    unsetenv("SLUICE_IO");
    const Log log;
    const base::Arena memory(2_MiB, "the test");
    const auto queue = patiently([] { return make_queue(QueueKind::uring, {}); });
    exit_with_queue(*queue, memory, "io_uring", log.has(0, {}));
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

// Two drives with rings of their own, which is all that this is about: the files are on one.
std::unique_ptr<DiskQueue> two_drives(QueueKind kind, bool strict = false) {
  return make_queue_for({1, 2}, kind, {.strict = strict});
}

// Room for none, and for one of two: that one is registered, the other left plain. The line says what both would take.
TEST_F(UringLimitsDeathTest, EachDriveRegistersTheSameMemoryAndOneLineNamesWhatAllTake) {
  const auto run = [](rlim_t limit, const std::string& description, const std::string& limit_text) {
    limit_locked_memory(limit, limit);
    give_up_capabilities();
    const base::Arena memory(4_MiB, "the test");
    for (int tries = 0;; ++tries) {
      const auto queue = patiently([] { return two_drives(QueueKind::uring); });
      const Log log;
      register_all(*queue, memory);
      if (queue->describe().find(description) == std::string::npos && tries < 200) {  // others hold locked memory, see above
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        continue;
      }
      exit_with_queue(*queue, memory, description,
                      log.has(1, {"register 4.00 MiB", "the rings of 2 drives, which takes 8.00 MiB", "`ulimit -l` is " + limit_text, "plain buffers"}));
    }
  };
  EXPECT_EXIT(run(256_KiB, "2 drives, each with io_uring", "256 KiB"), ::testing::ExitedWithCode(0), "");
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  if (limit.rlim_max < 7_MiB) GTEST_SKIP() << "this user may not lock enough memory";
  EXPECT_EXIT(run(7_MiB, "registered buffers; io_uring", "7.00 MiB"), ::testing::ExitedWithCode(0), "");
}

TEST_F(UringLimitsDeathTest, SeveralDrivesFallBackTogetherWithOneLine) {
  const auto run = [] {
    refuse_io_uring();
    unsetenv("SLUICE_IO");
    const Log log;
    const base::Arena memory(2_MiB, "the test");
    const auto queue = two_drives(QueueKind::automatic);
    exit_with_queue(*queue, memory, "2 drives, each with 8 threads", log.has(1, {"io_uring cannot be used"}));
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
  const auto strict = [] {
    refuse_io_uring();
    unsetenv("SLUICE_IO");
    exit_with_error(base::ErrorKind::disk, [] { two_drives(QueueKind::automatic, true); });
  };
  EXPECT_EXIT(strict(), ::testing::ExitedWithCode(0), "");
}

TEST_F(UringLimitsDeathTest, WhereItIsRefusedThreadsTakeOver) {
  const auto run = [] {
    refuse_io_uring();
    unsetenv("SLUICE_IO");
    const Log log;
    const base::Arena memory(2_MiB, "the test");
    const auto queue = make_queue(QueueKind::automatic, {});
    exit_with_queue(*queue, memory, "threads", log.has(1, {"io_uring_setup", "EPERM", "kernel.io_uring_disabled is", "seccomp", "threads"}));
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

TEST_F(UringLimitsDeathTest, WhereItIsRefusedStrictAndByNameAreErrors) {
  const auto strict = [] {
    refuse_io_uring();
    unsetenv("SLUICE_IO");
    exit_with_error(base::ErrorKind::disk, [] { make_queue(QueueKind::automatic, {.strict = true}); });
  };
  EXPECT_EXIT(strict(), ::testing::ExitedWithCode(0), "");
  const auto by_name = [] {
    refuse_io_uring();
    exit_with_error(base::ErrorKind::disk, [] { make_queue(QueueKind::uring, {}); });
  };
  EXPECT_EXIT(by_name(), ::testing::ExitedWithCode(0), "");
  const auto by_environment = [] {
    refuse_io_uring();
    setenv("SLUICE_IO", "uring", 1);
    exit_with_error(base::ErrorKind::disk, [] { make_queue(QueueKind::automatic, {}); });
  };
  EXPECT_EXIT(by_environment(), ::testing::ExitedWithCode(0), "");
}

// Entering the ring fails as it does when completions were lost: nobody can tell any more what was transferred.
TEST_F(UringLimitsDeathTest, ARingThatBreaksFailsAllRequestsAndHangsNone) {
  const auto run = [] {
    refuse(SYS_io_uring_enter, EBADR);
    const base::Arena memory(2_MiB, "the test");
    const Scratch scratch;
    const File file = File::create(scratch / "data", 2_MiB);
    std::atomic<int> failed = 0;
    {
      const auto queue = make_uring_queue({.block_size = 64_KiB, .depth = 4});
      register_all(*queue, memory);
      const auto count = [&](std::exception_ptr error) {
        try {
          if (error) std::rethrow_exception(error);
        } catch (const base::Error& e) {
          if (e.kind() == base::ErrorKind::disk && std::string(e.what()).find("SLUICE_IO=threads") != std::string::npos) ++failed;
        }
      };
      for (int i = 0; i < 8; ++i) queue->submit({i % 2 == 0 ? IoOp::write : IoOp::read, &file, memory.data(), 1_MiB, 0}, count);
      queue->drain();
      queue->submit({IoOp::sync, &file}, count);
    }
    std::filesystem::remove_all(scratch.path());
    _exit(failed == 9 ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

// Of four calls of this thread and those that it starts, one fails with EAGAIN and one with EBUSY, as when the kernel is short of memory, and one
// takes nothing of what it is given. `failed` counts them; it outlives the process.
void refuse_three_of_four(uint32_t call, std::atomic<int>& failed) {
  auto listener = std::make_shared<std::promise<int>>();
  std::thread([listener, &failed] {  // made before the filter, so free of it
    const int fd = listener->get_future().get();
    for (int n = 0;; ++n) {
      seccomp_notif asked{};
      if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) continue;
      seccomp_notif_resp answer{};
      answer.id = asked.id;
      if (n % 4 == 3)
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
      else
        answer.error = std::array{-EAGAIN, -EBUSY, 0}[static_cast<size_t>(n % 4)], ++failed;
      ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
  }).detach();
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(91);
  const long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
  if (fd < 0) _exit(93);
  listener->set_value(static_cast<int>(fd));
}

TEST_F(UringLimitsDeathTest, ABusyKernelIsAskedAgainToTakeAndToGive) {
  const auto run = [] {
    static std::atomic<int> failed = 0;
    refuse_three_of_four(SYS_io_uring_enter, failed);
    const base::Arena memory(2_MiB, "the test");
    const Scratch scratch;
    const File file = File::create(scratch / "data", 1_MiB);
    const auto queue = patient_queue({.block_size = 64_KiB, .depth = 4});
    for (uint64_t seed = 0; seed < 20; ++seed) {
      fill_pattern(memory.span(0, 1_MiB), seed, 0);
      submit(*queue, {IoOp::write, &file, memory.data(), 1_MiB, 0}).get();
      submit(*queue, {IoOp::read, &file, memory.data() + 1_MiB, 1_MiB, 0}).get();
      if (!has_pattern(memory.span(1_MiB, 1_MiB), seed, 0)) _exit(1);
    }
    std::filesystem::remove_all(scratch.path());
    _exit(failed > 40 ? 0 : 2);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

// A ring whose transfers keep ending with EAGAIN is gone round: here by calls that fail in their own way.
TEST_F(UringLimitsDeathTest, WhatTheRingKeepsPuttingOffIsDoneByABlockingCall) {
  const auto run = [] {
    refuse(SYS_preadv2, EROFS);
    refuse(SYS_pwritev2, EROFS);
    const base::Arena memory(2_MiB, "the test");
    const Scratch scratch;
    const File file = File::create(scratch / "data", 1_MiB);
    int calls = 0;
    const auto queue = patient_queue({.alter_result = [&](IoOp, uint64_t, int64_t result) { return ++calls <= 9 ? int64_t{-EAGAIN} : result; }});
    int gone_round = 0;
    for (const IoOp op : {IoOp::read, IoOp::write}) {
      calls = 0;
      try {
        submit(*queue, {op, &file, memory.data(), 1_MiB, 0}).get();
      } catch (const base::Error& error) {
        gone_round += std::string(error.what()).find("EROFS") != std::string::npos && calls == 10 ? 1 : 0;
      }
    }
    std::filesystem::remove_all(scratch.path());
    _exit(gone_round == 2 ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

// Signals end every wait for completions early.
TEST_F(UringLimitsDeathTest, SignalsInterruptNothing) {
  const auto run = [] {
    struct sigaction ignore {};
    ignore.sa_handler = [](int) {};  // no SA_RESTART: calls end with EINTR
    sigaction(SIGUSR1, &ignore, nullptr);
    const base::Arena memory(2_MiB, "the test");
    const auto queue = patient_queue({.block_size = 64_KiB, .depth = 4});
    const pid_t process = getpid();
    std::jthread storm([process](std::stop_token stop) {
      const pid_t self = gettid();
      while (!stop.stop_requested()) {
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
          if (const pid_t thread = std::stoi(task.path().filename()); thread != self) syscall(SYS_tgkill, process, thread, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
    const Scratch scratch;
    const File file = File::create(scratch / "data", 1_MiB);
    for (uint64_t seed = 0; seed < 50; ++seed) {
      fill_pattern(memory.span(0, 1_MiB), seed, 0);
      submit(*queue, {IoOp::write, &file, memory.data(), 1_MiB, 0}).get();
      submit(*queue, {IoOp::read, &file, memory.data() + 1_MiB, 1_MiB, 0}).get();
      if (!has_pattern(memory.span(1_MiB, 1_MiB), seed, 0)) _exit(1);
    }
    storm = {};
    std::filesystem::remove_all(scratch.path());
    _exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sluice::io
