#include "engine/comm/rank_launcher.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "tests/paths.h"

namespace sluice::comm {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

class RankLauncher : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / fmt::format("sluice_launcher_{}_{}", getpid(), test->name());
    fs::create_directories(folder_);
  }
  void TearDown() override {
    if (pid_ > 0 && !ended_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    fs::remove_all(folder_);
  }

  // The launcher as a process of its own.
  void start(const RankCommand& command) {
    pid_ = fork();
    ASSERT_GE(pid_, 0);
    if (pid_ > 0) return;
    dup2(open((folder_ / "out").c_str(), O_WRONLY | O_CREAT, 0644), STDOUT_FILENO);
    dup2(open((folder_ / "err").c_str(), O_WRONLY | O_CREAT, 0644), STDERR_FILENO);
    int code = 1;
    try {
      code = run_ranks(command);
    } catch (const base::Error& error) {
      code = error.exit_code();
    }
    _exit(code);
  }
  int finish() {
    int status = 0;
    waitpid(pid_, &status, 0);
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  int run(const RankCommand& command) {
    start(command);
    return finish();
  }
  std::string text(const std::string& name) const {
    std::ifstream in(folder_ / name);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }
  bool appears(const std::string& name, int seconds = 20) const {
    for (int i = 0; i < seconds * 100 && !fs::exists(folder_ / name); ++i) std::this_thread::sleep_for(milliseconds(10));
    return fs::exists(folder_ / name);
  }

  RankCommand body(const std::string& name, int ranks) const {
    return {{(binary_dir() / "tests/engine/comm/rank_program").string(), name, folder_.string()}, ranks};
  }
  RankCommand shell(const std::string& script, int ranks, double grace = 30) const {
    return {{"/bin/sh", "-c", script, "sh", folder_.string()}, ranks, grace};
  }

  fs::path folder_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

TEST_F(RankLauncher, StartsRanksThatFindEachOther) {
  EXPECT_EQ(run(body("collectives", 4)), 0) << text("err");
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(text(fmt::format("rank{}", rank)), "0 \n");
}

TEST_F(RankLauncher, ReturnsTheCodeOfTheRankThatFailed) {
  EXPECT_EQ(run(body("failed", 3)), 7) << text("err");
  EXPECT_THAT(text("rank0"), HasSubstr("9 rank 2: disk error: /data: no space left"));
}

TEST_F(RankLauncher, AKilledRankEndsTheRunWithCode9) {
  EXPECT_EQ(run(body("dead", 3)), 9);
  EXPECT_THAT(text("err"), HasSubstr("rank 2 was killed by signal 9"));
  EXPECT_THAT(text("rank1"), HasSubstr("9 rank 2: its process ended without a word"));
}

TEST_F(RankLauncher, OnlyRank0PrintsUnmarked) {
  EXPECT_EQ(run(shell("echo out$RANK; echo err$RANK >&2; printf unended$RANK", 3)), 0);
  EXPECT_EQ(text("out"), "out0\nunended0");
  for (const char* line : {"err0\n", "rank 1: out1\n", "rank 1: err1\n", "rank 2: out2\n", "rank 2: unended2\n"}) EXPECT_THAT(text("err"), HasSubstr(line));
  EXPECT_THAT(text("err"), Not(HasSubstr("rank 0: ")));
}

TEST_F(RankLauncher, PassesSignalsOnAndReturnsThatTheRunWasStopped) {
  for (const int signal : {SIGTERM, SIGINT}) {
    start(shell("trap 'exit 75' TERM INT; : > $1/up$RANK; while :; do sleep 0.02; done", 2));
    EXPECT_TRUE(appears("up0") && appears("up1"));
    kill(pid_, signal);
    EXPECT_EQ(finish(), 75);
    fs::remove(folder_ / "up0");
    fs::remove(folder_ / "up1");
  }
}

TEST_F(RankLauncher, RanksEndWhenTheLauncherIsKilled) {
  start(shell("trap ': > $1/stopped$RANK; exit 0' TERM; : > $1/up$RANK; while :; do sleep 0.02; done", 2));
  EXPECT_TRUE(appears("up0") && appears("up1"));
  kill(pid_, SIGKILL);
  EXPECT_EQ(finish(), 128 + SIGKILL);
  EXPECT_TRUE(appears("stopped0") && appears("stopped1"));
}

TEST_F(RankLauncher, EndsRanksThatDoNotReactToAFailure) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run(shell("[ $RANK = 1 ] && exit 5; trap '' TERM; exec sleep 60", 2, 0.3)), 5);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_THAT(text("err"), HasSubstr("rank 1 has ended with exit code 5 before all ranks had met"));
}

TEST_F(RankLauncher, ARankThatIsKilledBeforeAllHaveMetEndsTheOthersSoon) {
  RankCommand command = shell("[ $RANK = 1 ] && kill -KILL $$; exec sleep 60", 3);
  command.short_grace = 0.2;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run(command), 9);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_THAT(text("err"), HasSubstr("rank 1 was killed by signal 9 (Killed) before all ranks had met; ending the others"));
}

TEST_F(RankLauncher, AStoppedRankIsKilledSoonAfterTheOthersHaveGivenItUp) {
  RankCommand command = shell("[ $RANK = 1 ] && kill -STOP $$; exit 9", 3);
  command.short_grace = 0.2;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run(command), 9);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_THAT(text("err"), HasSubstr("given up waiting for rank 1, which is hung or stopped; killing it"));
}

TEST_F(RankLauncher, RanksThatHaveMetGetTheirTimeToEnd) {
  RankCommand command = body("deaf", 2);
  command.grace = 0.5;
  command.short_grace = 0;
  EXPECT_EQ(run(command), 7);
  EXPECT_THAT(text("err"), HasSubstr("rank 1 has ended with exit code 7; still running: rank 0; ending what is left"));
}

TEST_F(RankLauncher, SaysThatAProgramCannotBeStarted) {
  EXPECT_EQ(run({{"/no/such/program"}, 2}), 127);
  EXPECT_THAT(text("err"), HasSubstr("cannot start /no/such/program"));
}

}  // namespace
}  // namespace sluice::comm
