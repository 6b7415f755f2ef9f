// The contract of Comm and Control on every implementation that needs no launcher; launch_test.cc has those that do.
#include "engine/comm/comm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "engine/comm/socket.h"
#include "engine/comm/socket_comm.h"
#include "tests/paths.h"
#include "ranks.h"

namespace sluice::comm {
namespace {

using testing::HasSubstr;

struct Kind {
  std::string name;
  std::function<std::vector<Outcome>(int world, const std::string& body)> run;
  bool processes;  // a rank can be killed
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class CommSuite : public testing::TestWithParam<Kind> {
 protected:
  std::vector<Outcome> run(int world, const std::string& body) {
    const auto start = std::chrono::steady_clock::now();
    auto outcomes = GetParam().run(world, body);
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return outcomes;
  }
  void expect_all_good(int world, const std::string& body) {
    const auto outcomes = run(world, body);
    for (size_t r = 0; r < outcomes.size(); ++r) {
      EXPECT_EQ(outcomes[r].code, 0) << "rank " << r << " of " << world;
      EXPECT_EQ(outcomes[r].text, "");
    }
  }
  // The others end with exit code 9, in time, and name the last rank and what it says.
  Outcome expect_told(int world, const std::string& body, const std::string& reason) {
    const auto outcomes = run(world, body);
    for (size_t r = 0; r + 1 < outcomes.size(); ++r) {
      EXPECT_EQ(outcomes[r].code, 9) << "rank " << r << ": " << outcomes[r].text;
      EXPECT_THAT(outcomes[r].text, HasSubstr(fmt::format("rank {}: ", world - 1)));
      EXPECT_THAT(outcomes[r].text, HasSubstr(reason));
    }
    EXPECT_LT(seconds_, kDeadline + kSlack);
    return outcomes.back();
  }
  double seconds_ = 0;
};

TEST_P(CommSuite, CollectivesGiveWhatPlainLoopsGive) {
  for (const int world : {1, 2, 4}) expect_all_good(world, "collectives");
}

TEST_P(CommSuite, TheControlChannelMatchesExchangesByTopicAndOrder) {
  for (const int world : {1, 2, 4}) expect_all_good(world, "control");
}

TEST_P(CommSuite, ARankThatIsLateFailsTheOthersWithinTheDeadline) {
  const Outcome late = expect_told(3, "late", "waited for");
  EXPECT_EQ(late.code, 9);  // it is told too, when it comes
  EXPECT_THAT(late.text, HasSubstr("this rank, 2, has failed"));
}

TEST_P(CommSuite, ARankThatIsLateToTheControlChannelFailsTheOthers) { expect_told(3, "late_control", "have waited for it"); }

TEST_P(CommSuite, WhoKnowsThatItTakesLongWaitsLonger) { expect_all_good(2, "patient"); }

TEST_P(CommSuite, ARankThatIsKilledFailsTheOthers) {
  if (!GetParam().processes) GTEST_SKIP() << "a thread cannot be killed alone";
  for (const int world : {2, 4}) EXPECT_EQ(expect_told(world, "dead", "ended without a word").code, 128 + 9);
}

TEST_P(CommSuite, TheReasonOfARankThatFailsReachesTheOthers) {
  for (const int world : {2, 4}) EXPECT_EQ(expect_told(world, "failed", "disk error: /data: no space left").code, 7);
}

TEST_P(CommSuite, ARankThatLeavesWithoutClosingHasFailed) { EXPECT_EQ(expect_told(3, "left", "without saying why").code, 0); }

TEST_P(CommSuite, RanksThatDisagreeAboutSizesFail) {
  for (const Outcome& outcome : run(2, "mismatch")) EXPECT_TRUE(outcome.code == 1 || outcome.code == 9) << outcome.text;
}

const Kind kThreads{"Threads", [](int world, const std::string& body) { return run_threads(world, body, kDeadline); }, false};

const Kind kSockets{"Sockets", [](int world, const std::string& body) { return run_processes(world, body, kDeadline, make_socket_comm); }, true};

// With recovery mpirun does not end the others itself, so that they show what they have been told.
const Kind kMpi{"OpenMpi", [](int world, const std::string& body) {
  return run_launched(fmt::format("mpirun --allow-run-as-root --oversubscribe --enable-recovery -n {}", world), world, body);
}, true};

INSTANTIATE_TEST_SUITE_P(All, CommSuite, testing::Values(kThreads, kSockets), testing::PrintToStringParamName());
#ifdef SLUICE_TEST_MPI
INSTANTIATE_TEST_SUITE_P(Mpi, CommSuite, testing::Values(kMpi), testing::PrintToStringParamName());
#endif

void expect_good(const std::string& command, int world) {
  for (const Outcome& outcome : run_launched(command, world, "collectives")) {
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.text, "");
  }
}

TEST(Launchers, TorchrunStartsRanks) {
  const auto torchrun = source_dir() / ".venv/bin/torchrun";
  if (!std::filesystem::exists(torchrun)) GTEST_SKIP() << "no torchrun";
  expect_good(fmt::format("{} --no-python --standalone --nproc-per-node 4", torchrun.string()), 4);
}

TEST(Launchers, VariablesSetByHandStartRanks) {
  const uint16_t port = port_of(listen_on(0, true));  // free again, and likely to stay so
  const std::string common = fmt::format("WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT={}", port);
  // The shell starts rank 1 beside rank 0, which comes later and takes the port.
  expect_good(fmt::format("sh -c '{} RANK=1 \"$@\" & sleep 0.3; {} RANK=0 \"$@\"; wait' sh", common, common), 2);
}

}  // namespace
}  // namespace sluice::comm
