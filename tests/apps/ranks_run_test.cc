// Several ranks through the program: they train, go on as another number of ranks, and end together when one of them dies or is stopped.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <map>
#include <thread>

#include "tests/apps/run_fixture.h"

namespace sluice::apps {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace std::chrono_literals;

const Words kMpirun{"mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"};

class RanksRun : public RunFixture {
 protected:
  static Words ranks(int n, const Words& set = {}) {
    Words all{"train_micro_batch_size_per_gpu=1", "train_batch_size=4"};
    all.insert(all.end(), set.begin(), set.end());
    return train(all, {"--resume", "auto", "--nproc", std::to_string(n)});
  }

  // Under a launcher of its own.
  ProgramResult launched(const Words& launcher, const Words& arguments) const { return Program(arguments, at(""), environment_, launcher).finish(); }

  // Processes that this one has started, in the order of their start: the ranks.
  static std::vector<pid_t> children(pid_t parent) {
    std::ifstream in("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
    std::vector<pid_t> found;
    for (pid_t pid; in >> pid;) found.push_back(pid);
    return found;
  }

  // Waits until so many steps are in metrics.jsonl.
  void wait_for_steps(size_t steps) const {
    for (int i = 0; i < 600 && (!std::filesystem::exists(at("run/metrics.jsonl")) || steps_written("run") < steps); ++i)
      std::this_thread::sleep_for(50ms);
    ASSERT_GE(steps_written("run"), steps);
  }
};

TEST_F(RanksRun, GoOnAsAnotherNumberOfRanks) {
  succeed(ranks(2, {"steps=2"}));
  EXPECT_EQ(inspect("run").at("world"), 2);
  uint64_t step = 2;
  for (const int n : {4, 1, 3, 2}) {
    const std::string batch = n == 3 ? "train_batch_size=6" : "train_batch_size=4";
    const std::string told = succeed(ranks(n, {"steps=" + std::to_string(step += 2), batch}));
    EXPECT_THAT(told, HasSubstr("run.world")) << "the change is told";
    for (const char* same : {"run.dir:", "storage.paths:"}) EXPECT_THAT(told, Not(HasSubstr(same)));
    const auto seen = inspect("run");
    EXPECT_EQ(seen.at("world"), n);
    EXPECT_EQ(seen.at("step"), step);
  }
  EXPECT_EQ(steps_written("run"), step);
  EXPECT_EQ(inspect("run").at("samples"), 2 * (4 + 4 + 4 + 6 + 4));
  succeed({"eval", "run"});
  succeed({"export", "run", "exported"});
}

// The same numbers whoever starts them, and what one rank computes to rounding.
TEST_F(RanksRun, SeveralRanksTrainWhatOneTrains) {
  succeed(ranks(1, {"run.dir=one", "steps=4"}));
  succeed(ranks(2, {"run.dir=two", "steps=4"}));
  std::ifstream one(at("one/metrics.jsonl")), two(at("two/metrics.jsonl"));
  size_t steps = 0;
  double written_by_one = 0, written_by_two = 0;
  const auto flops = [](const nlohmann::json& step) { return step.at("flops").at("per_s").get<double>() * step.at("step_seconds").get<double>(); };
  for (std::string a, b; std::getline(one, a) && std::getline(two, b);) {
    const auto left = nlohmann::json::parse(a), right = nlohmann::json::parse(b);
    written_by_one += left.at("disk").at("written").get<double>();
    written_by_two += right.at("disk").at("written").get<double>();
    EXPECT_NEAR(flops(left) / flops(right), 1, 1e-6) << "the model's, by all ranks";
    if (!left.contains("loss") || !left.contains("grad_norm")) continue;
    EXPECT_NEAR(left.at("loss").get<double>(), right.at("loss").get<double>(), 5e-3);
    ++steps;
  }
  EXPECT_EQ(steps, 4u);
  EXPECT_NEAR(written_by_two / written_by_one, 1, .05) << "on the drives, by all ranks";
}

// No faster than the emulated network, whose time the lines of the steps tell.
TEST_F(RanksRun, ExchangeAtTheRateOfTheEmulatedNetwork) {
  const std::string told = succeed(ranks(2, {"steps=4", "machine.links.net=4MB/s", "machine.links.net_latency=1e-3"}));
  EXPECT_THAT(told, HasSubstr("% hidden by compute"));
  EXPECT_THAT(told, HasSubstr("2 ranks over TCP"));
  EXPECT_THAT(told, HasSubstr("2 ranks, ZeRO stage 3; a step's 4 samples: 2 on each rank, in 2 micro-batches of 1."));
  EXPECT_THAT(told, HasSubstr("\n  communication "));
  std::ifstream in(at("run/metrics.jsonl"));
  double bytes = 0, seconds = 0;
  for (std::string line; std::getline(in, line);) {
    const auto step = nlohmann::json::parse(line);
    if (!step.contains("loss")) continue;
    ASSERT_TRUE(step.contains("communication")) << line;
    bytes += step.at("bytes").at("net").get<double>();
    seconds += step.at("communication").at("seconds").get<double>();
    EXPECT_GE(step.at("communication").at("hidden").get<double>(), 0);
  }
  EXPECT_GT(bytes, 0);
  EXPECT_GE(seconds, bytes / 4e6);
}

TEST_F(RanksRun, OneThatIsKilledEndsTheRunWhichGoesOnWithOthers) {
  for (const int victim : {0, 1}) {
    std::filesystem::remove_all(at("run"));
    Program program(ranks(2, {"steps=100000"}), at(""), environment_);
    wait_for_steps(3);
    const std::vector<pid_t> all = children(program.pid());
    ASSERT_EQ(all.size(), 2u);
    kill(all[static_cast<size_t>(victim)], SIGKILL);
    const ProgramResult result = program.finish();
    EXPECT_EQ(result.status, 9) << result.err;
    EXPECT_THAT(result.err, HasSubstr("rank " + std::to_string(victim)));
    const size_t before = inspect("run").at("step");
    EXPECT_GE(before, 2u);
    succeed(ranks(victim == 0 ? 3 : 1, {"steps=" + std::to_string(before + 2), victim == 0 ? "train_batch_size=6" : "train_batch_size=4"}));
    EXPECT_EQ(inspect("run").at("step"), before + 2);
    EXPECT_LE(steps_written("run"), before + 2);
  }
}

// Losses by step.
std::map<uint64_t, double> losses(const std::filesystem::path& metrics) {
  std::map<uint64_t, double> found;
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line);)
    if (const auto step = nlohmann::json::parse(line); step.contains("loss")) found[step.at("step")] = step.at("loss");
  return found;
}

TEST_F(RanksRun, AfterAKillTheLossesAreThoseOfARunThatWasNotInterrupted) {
  const std::string rate = "optimizer.params.lr=1e-4";
  {
    Program program(ranks(2, {"steps=100000", rate}), at(""), environment_);
    wait_for_steps(3);
    kill(children(program.pid()).at(1), SIGKILL);
    EXPECT_EQ(program.finish().status, 9);
  }
  const std::string steps = "steps=" + std::to_string(inspect("run").at("step").get<size_t>() + 3);
  succeed(ranks(2, {steps, rate}));
  succeed(ranks(2, {steps, rate, "run.dir=whole"}));
  EXPECT_EQ(losses(at("run/metrics.jsonl")), losses(at("whole/metrics.jsonl")));
}

TEST_F(RanksRun, TorchrunStartsThem) {
  const auto torchrun = source_dir() / ".venv/bin/torchrun";
  if (!std::filesystem::exists(torchrun)) GTEST_SKIP() << "no torchrun";
  const ProgramResult result =
      launched({torchrun.string(), "--no-python", "--standalone", "--nproc-per-node", "2"}, train({"train_micro_batch_size_per_gpu=1", "train_batch_size=4"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("2 ranks over TCP"));
  EXPECT_EQ(inspect("run").at("world"), 2);
  EXPECT_EQ(inspect("run").at("step"), 2);
}

TEST_F(RanksRun, AStopSignalReachesAll) {
  Program program(ranks(2, {"steps=100000"}), at(""), environment_);
  wait_for_steps(3);
  program.signal(SIGTERM);
  const ProgramResult result = program.finish();
  EXPECT_EQ(result.status, 75) << result.err;
  const size_t step = inspect("run").at("step");
  EXPECT_EQ(steps_written("run"), step);
  succeed(ranks(2, {"steps=" + std::to_string(step + 1)}));
}

// Nobody but the launcher can know.
TEST_F(RanksRun, OneThatIsKilledBeforeTheyHaveMetEndsTheRun) {
  Program program(ranks(2), at(""), environment_);
  for (int i = 0; i < 1000 && children(program.pid()).size() < 2; ++i) std::this_thread::sleep_for(1ms);
  const auto begin = std::chrono::steady_clock::now();
  kill(children(program.pid()).at(1), SIGKILL);
  const ProgramResult result = program.finish();
  EXPECT_EQ(result.status, 9);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  EXPECT_THAT(result.err, HasSubstr("rank 1 was killed by signal 9 (Killed) before all ranks had met"));
}

// mpirun ends all ranks with the first one that ends, which may be one that was told.
TEST_F(RanksRun, UnderMpirunTheCodeIsThatOfTheRankThatFailed) {
#ifndef SLUICE_TEST_MPI
  GTEST_SKIP() << "built without MPI";
#endif
  for (int round = 0; round < 3; ++round) {
    const ProgramResult missing = launched(kMpirun, train({"model.path=nowhere"}));
    EXPECT_EQ(missing.status, 4) << missing.err;
    EXPECT_THAT(missing.err, HasSubstr("nowhere"));
  }
  const ProgramResult tokens = launched(kMpirun, train({"data.train=nowhere.tokens"}));
  EXPECT_EQ(tokens.status, 3) << tokens.err;
  EXPECT_THAT(tokens.err, Not(HasSubstr("without saying why")));
}

// Commands that are one process's work, started by a launcher all the same.
TEST_F(RanksRun, WhatIsNoRanksWorkIsDoneOnce) {
  fresh_run();
  environment_ = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29999"}};
  EXPECT_EQ(succeed({"export", "run", "exported"}), "");
  EXPECT_FALSE(std::filesystem::exists(at("exported")));
  environment_["RANK"] = "0";
  EXPECT_THAT(succeed({"export", "run", "exported"}), HasSubstr("the first one does it"));
  EXPECT_TRUE(std::filesystem::exists(at("exported/config.json")));
  environment_ = {{"RANK", "1"}};
  EXPECT_EQ(nlohmann::json::parse(run({"config", "config.json", "--world", "2", "--json"}).out).at("config").at("train_batch_size"), 4);
#ifdef SLUICE_TEST_MPI
  environment_.clear();
  const ProgramResult result = launched(kMpirun, {"config", "config.json", "--json"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out).at("config").at("run").at("world"), 1);
#endif
}

// At any time: while starting, loading, stepping, committing, or ending.
TEST_F(RanksRun, SlowKilledAtAnyTimeItGoesOnWithAnotherNumber) {
  size_t committed = 0;
  for (int round = 0; round < 16; ++round) {
    const int n = 2 + round % 3;
    Program program(ranks(n, {"steps=100000", n == 3 ? "train_batch_size=6" : "train_batch_size=4"}), at(""), environment_);
    std::this_thread::sleep_for(std::chrono::milliseconds(150 + 170 * round % 1900));
    if (const std::vector<pid_t> all = children(program.pid()); !all.empty())
      kill(all[static_cast<size_t>(round) % all.size()], SIGKILL);
    else
      program.signal(SIGKILL);
    const ProgramResult result = program.finish();
    EXPECT_TRUE(result.status == 9 || result.status == 128 + SIGKILL) << result.status << "\n" << result.err;
    if (!std::filesystem::exists(at("run/store"))) continue;
    const size_t step = inspect("run").at("step");
    EXPECT_GE(step, committed);
    committed = step;
  }
  succeed(ranks(2, {"steps=" + std::to_string(committed + 2)}));
  EXPECT_LE(steps_written("run"), committed + 2);
}

}  // namespace
}  // namespace sluice::apps
