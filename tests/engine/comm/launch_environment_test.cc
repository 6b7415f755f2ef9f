#include "engine/comm/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace sluice::comm {
namespace {

using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables) {
  return read_launch_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

const Variables kTorchrun{{"TORCHELASTIC_RUN_ID", "abc"}, {"TORCHELASTIC_RESTART_COUNT", "1"}, {"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};
const Variables kMpirun{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kSrun{{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", "3"},
                      {"SLURM_STEP_NODELIST", "gpu[07-09,12],big1"}, {"SLURM_NTASKS", "6"}};

std::string refusal(const Variables& variables) {
  try {
    read(variables);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  return "accepted";
}

TEST(LaunchEnvironment, IsOneRankWithoutALauncher) {
  for (const Variables& v : {Variables{}, Variables{{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}},  // a batch script
                             Variables{{"PMI_SIZE", "1"}}}) {
    const auto e = read(v);
    EXPECT_EQ(e.launcher, Launcher::none);
    EXPECT_EQ(e.rank, 0);
    EXPECT_EQ(e.world, 1);
  }
}

TEST(LaunchEnvironment, ReadsTorchrun) {
  auto e = read(kTorchrun);
  EXPECT_EQ(e.launcher, Launcher::torchrun);
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.world, 8);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world, 4);
  EXPECT_EQ(e.host, "node7");
  EXPECT_EQ(e.port, 29500);
  EXPECT_FALSE(e.mpi);
  // A restart is another job; and where torchrun itself listens, the next port is taken.
  EXPECT_NE(e.job, read(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "2"}})).job);
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).port, 29501);
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"SLUICE_PORT", "1234"}})).port, 1234);
}

TEST(LaunchEnvironment, ReadsOpenMpi) {
  const auto e = read(kMpirun);
  EXPECT_EQ(e.launcher, Launcher::mpirun);
  EXPECT_EQ(e.rank, 3);
  EXPECT_EQ(e.world, 4);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world, 2);
  EXPECT_TRUE(e.mpi);
}

TEST(LaunchEnvironment, ReadsSlurm) {
  const auto e = read(kSrun);
  EXPECT_EQ(e.launcher, Launcher::srun);
  EXPECT_EQ(e.rank, 2);
  EXPECT_EQ(e.world, 6);
  EXPECT_EQ(e.local_rank, 0);
  EXPECT_EQ(e.host, "gpu07");
  EXPECT_GT(e.port, 1024);
  EXPECT_NE(e.port, read(with(kSrun, {{"SLURM_STEP_ID", "4"}})).port);
  EXPECT_FALSE(e.mpi);
  EXPECT_TRUE(read(with(kSrun, {{"PMIX_RANK", "2"}})).mpi);
  const auto told = read(with(kSrun, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "777"}}));
  EXPECT_EQ(told.host, "10.0.0.1");
  EXPECT_EQ(told.port, 777);
}

// SLURM_NTASKS_PER_NODE is there only when the option was given.
TEST(LaunchEnvironment, KnowsHowManyRanksOfSlurmShareAHost) {
  const auto here = [](const Variables& more) { return read(with(kSrun, more)).local_world; };
  EXPECT_EQ(here({}), 6) << "nothing is known";
  EXPECT_EQ(here({{"SLURM_NTASKS_PER_NODE", "3"}}), 3);
  EXPECT_EQ(here({{"SLURM_STEP_TASKS_PER_NODE", "2(x2),1(x2)"}, {"SLURM_NODEID", "1"}, {"SLURM_TASKS_PER_NODE", "9"}}), 2);
  EXPECT_EQ(here({{"SLURM_STEP_TASKS_PER_NODE", "2(x2),1(x2)"}, {"SLURM_NODEID", "3"}}), 1);
  EXPECT_EQ(here({{"SLURM_TASKS_PER_NODE", "6"}}), 6);
}

TEST(LaunchEnvironment, ReadsASlurmListOfTasks) {
  EXPECT_EQ(tasks_on_node("4(x2),1", 0), 4);
  EXPECT_EQ(tasks_on_node("4(x2),1", 1), 4);
  EXPECT_EQ(tasks_on_node("4(x2),1", 2), 1);
  EXPECT_EQ(tasks_on_node("1,12,3(x10)", 1), 12);
  EXPECT_EQ(tasks_on_node("1,12,3(x10)", 11), 3);
  for (const char* nothing : {"", "4(x2),1", "x", "4(x", "4(x)", "4(2)", "-1", "4,"}) EXPECT_EQ(tasks_on_node(nothing, 3), 0) << nothing;
}

TEST(LaunchEnvironment, TheInnermostLauncherCounts) {
  EXPECT_EQ(read(with(kSrun, kMpirun)).launcher, Launcher::mpirun);
  EXPECT_EQ(read(with(with(kSrun, kMpirun), kTorchrun)).launcher, Launcher::torchrun);
  const auto own = read(with(with(kMpirun, kTorchrun), {{"SLUICE_JOB", "x"}, {"RANK", "0"}, {"SLUICE_LISTENER", "5"}, {"SLUICE_MET", "6"}}));
  EXPECT_EQ(own.launcher, Launcher::nproc);
  EXPECT_EQ(own.listener, 5);
  EXPECT_EQ(own.met, 6);
}

TEST(LaunchEnvironment, ReadsVariablesSetByHand) {
  const auto e = read({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "5000"}});
  EXPECT_EQ(e.launcher, Launcher::variables);
  EXPECT_EQ(e.rank, 1);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).world, 1);
}

TEST(LaunchEnvironment, SaysWhatIsMissingOrWrong) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal({{"RANK", "1"}}), HasSubstr("WORLD_SIZE is not set"));
  EXPECT_THAT(refusal({{"WORLD_SIZE", "2"}}), HasSubstr("RANK is not set"));
  EXPECT_THAT(refusal({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "8"}})), HasSubstr("RANK=8: expected a number from 0 to 7"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"MASTER_PORT", "99999"}})), HasSubstr("MASTER_PORT=99999"));
  EXPECT_THAT(refusal(with(kMpirun, {{"OMPI_COMM_WORLD_RANK", "x"}})), HasSubstr("OMPI_COMM_WORLD_RANK=x"));
  EXPECT_THAT(refusal(with(kSrun, {{"SLURM_STEP_NODELIST", ""}})), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(refusal({{"PMI_SIZE", "4"}}), HasSubstr("another MPI"));
}

TEST(LaunchEnvironment, FindsTheFirstHostOfASlurmList) {
  EXPECT_EQ(first_host("a"), "a");
  EXPECT_EQ(first_host("a,b[1-2]"), "a");
  EXPECT_EQ(first_host("n[01-03,07],m1"), "n01");
  EXPECT_EQ(first_host("n[5],m"), "n5");
  EXPECT_EQ(first_host("rack1-n[12,14]-ib,x"), "rack1-n12-ib");
  EXPECT_EQ(first_host("n[1"), "");
  EXPECT_EQ(first_host(""), "");
}

}  // namespace
}  // namespace sluice::comm
