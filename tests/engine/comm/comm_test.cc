// The contract on every implementation that needs no GPU, and the launchers that are not ours.
#include <gtest/gtest.h>

#include <filesystem>

#include "comm_suite.h"
#include "engine/comm/socket.h"
#include "engine/comm/socket_comm.h"
#include "ranks.h"
#include "tests/paths.h"

namespace sluice::comm {
namespace {

const Kind kThreads{"Threads", [](int world, const std::string& body) { return run_threads(world, body, kDeadline); }, false};

Kind sockets(const std::string& name, bool direct) {
  return {name, [direct](int world, const std::string& body) {
    return run_processes(world, body, kDeadline, [direct](auto control, const CommOptions& options) {
      return make_socket_comm(std::move(control), options, direct);
    });
  }};
}

// With recovery mpirun does not end the others itself, so that they show what they have been told.
const Kind kMpi{"OpenMpi", [](int world, const std::string& body) {
  return run_launched(fmt::format("mpirun --allow-run-as-root --oversubscribe --enable-recovery -n {}", world), world, body);
}};

INSTANTIATE_TEST_SUITE_P(All, CommSuite, testing::Values(kThreads, sockets("Direct", true), sockets("Sockets", false)), testing::PrintToStringParamName());
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
