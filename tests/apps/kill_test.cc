// A run that is killed and resumed, however often, ends with the bits of a run that was not.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/apps/program.h"
#include "tests/paths.h"

namespace sluice::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class KillTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "sluice-kill-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write_config(uint64_t steps) {
    const json config{{"model", {{"path", (test_models() / "tied" / "model").string()}, {"loss_chunk", 64}}},
                      {"data", {{"train", (test_models() / "train.tokens").string()}, {"sequence_length", 64}}},
                      {"steps", steps},
                      {"train_micro_batch_size_per_gpu", 2},
                      {"gradient_accumulation_steps", 2},
                      {"gradient_clipping", 1.3},  // now and then: guesses of the optimizer come true and fail
                      {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}, {"weight_decay", 0.1}}}}},
                      {"zero_optimization", {{"stage", 3}, {"offload_param", {{"device", "nvme"}}}, {"offload_optimizer", {{"device", "nvme"}}}}},
                      {"storage", {{"tile", 65536}, {"durable", "step"}}},
                      {"memory", {{"gpu", "256MiB"}, {"host", "512MiB"}}},
                      {"machine", {{"device", "cpu"}, {"compute_threads", 1}}}};
    std::ofstream(folder_ / "config.json") << config.dump(2);
  }
  // A run may go on with another overlap of the optimizer than it began with.
  std::vector<std::string> train(const std::string& run, size_t overlap = 0) const {
    const char* names[] = {"none", "forward", "backward", "spread"};
    return {"train", "config.json", "--resume", "auto", "--set", "run.dir=" + run, "--set", std::string("execution.overlap=") + names[overlap % 4]};
  }
  json inspect(const std::string& run) {
    const ProgramResult result = run_program({"inspect", run, "--json", "--verify"}, folder_);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.status == 0 ? json::parse(result.out) : json::object();
  }
  std::vector<json> metrics(const std::string& run) const {
    std::vector<json> lines;
    std::ifstream in(folder_ / run / "metrics.jsonl");
    for (std::string line; std::getline(in, line) && !in.eof();)  // the last one may be half written
      if (const json parsed = json::parse(line); parsed.contains("loss")) lines.push_back(parsed);  // no events
    return lines;
  }
  void finish(const std::string& run) {
    const ProgramResult result = run_program(train(run), folder_);
    ASSERT_EQ(result.status, 0) << result.err;
  }
  void expect_same_run(const std::string& run, const std::string& whole) {
    const json a = inspect(run), b = inspect(whole);
    EXPECT_EQ(a["step"], b["step"]);
    EXPECT_EQ(a["weights_xxh3"], b["weights_xxh3"]);
    EXPECT_EQ(a["state_xxh3"], b["state_xxh3"]);
    // A kill between a commit and its line loses the line; every line that is there is right and in order.
    const auto m = metrics(run), n = metrics(whole);
    uint64_t last = 0;
    for (const json& line : m) {
      EXPECT_GT(line["step"], last);
      last = line["step"];
      EXPECT_EQ(line["loss"], n.at(last - 1)["loss"]) << last;
      EXPECT_EQ(line["lr"], n.at(last - 1)["lr"]) << last;
    }
  }
  // Kills the run at a random moment, `kills` times, and lets it finish.
  void kill_and_finish(const std::string& run, int kills, double longest, unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < kills; ++i) {
      Program program(train(run, random()), folder_);
      std::this_thread::sleep_for(std::chrono::duration<double>(std::uniform_real_distribution<>(0.0, longest)(random)));
      program.signal(SIGKILL);
      const ProgramResult result = program.finish();
      ASSERT_TRUE(result.status == 128 + SIGKILL || result.status == 0) << result.err;
    }
    finish(run);
  }

  fs::path folder_;
};

TEST_F(KillTest, KilledAtRandomMomentsARunEndsWithTheSameBits) {
  write_config(12);
  const auto begin = std::chrono::steady_clock::now();
  finish("whole");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  kill_and_finish("killed", 4, seconds, 3);
  expect_same_run("killed", "whole");
}

TEST_F(KillTest, SlowTwentyKillsAndKillsDuringTheResume) {
  write_config(300);
  const auto begin = std::chrono::steady_clock::now();
  finish("whole");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  kill_and_finish("killed", 20, seconds / 6, 5);  // some kills fall into opening and loading
  expect_same_run("killed", "whole");
}

TEST_F(KillTest, StoppedAtEveryPointOfACommitARunEndsWithTheSameBits) {
  write_config(3);
  finish("whole");
  size_t overlap = 0;
  for (const char* point : {"create.layout:1", "create.filled:1", "create.published:1", "create.renamed:1", "commit.begin:2", "commit.table:1",
                            "commit.prepared:2", "commit.record:2", "commit.done:1"}) {
    SCOPED_TRACE(point);
    const std::string run = std::string("at-") + point;
    const ProgramResult stopped = run_program(train(run, ++overlap), folder_, {{"SLUICE_FAILPOINT", point}});
    EXPECT_EQ(stopped.status, 137) << stopped.err;
    finish(run);
    expect_same_run(run, "whole");
  }
}

TEST_F(KillTest, ATerminationSignalCommitsAndExitsWith75) {
  write_config(100000);
  Program program(train("run", 3), folder_);
  while (program.running() && metrics("run").size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  program.signal(SIGTERM);
  const ProgramResult result = program.finish();
  EXPECT_EQ(result.status, 75) << result.err;
  EXPECT_EQ(inspect("run")["step"], metrics("run").size());
}

TEST_F(KillTest, WithoutGraceASignalAbandonsTheStepAndResumingStillGivesTheSameBits) {
  write_config(40);
  finish("whole");
  for (size_t stops = 0; stops < 4; ++stops) {
    std::vector<std::string> impatient = train("run", stops);
    impatient.insert(impatient.end(), {"--set", "run.grace=0"});
    Program program(impatient, folder_);
    const size_t before = metrics("run").size();
    while (program.running() && metrics("run").size() < before + 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    program.signal(SIGTERM);
    const ProgramResult result = program.finish();
    EXPECT_EQ(result.status, 75) << result.err;
  }
  finish("run");
  expect_same_run("run", "whole");
}

TEST_F(KillTest, AnExistingRunIsRefusedWithoutResumeAndLeftAlone) {
  write_config(2);
  finish("run");
  const json before = inspect("run");
  const ProgramResult refused = run_program({"train", "config.json", "--set", "run.dir=run"}, folder_);
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("--resume auto"), std::string::npos) << refused.err;
  EXPECT_EQ(inspect("run"), before);
  finish("run");  // a finished run: nothing to do
  EXPECT_EQ(inspect("run"), before);
}

TEST_F(KillTest, ASecondProcessIsRefusedWhileARunHoldsTheStore) {
  write_config(100000);
  Program program(train("run"), folder_);
  while (program.running() && metrics("run").size() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const ProgramResult second = run_program({"inspect", "run"}, folder_);
  EXPECT_EQ(second.status, 7) << second.err;
  EXPECT_TRUE(program.running());
}

}  // namespace
}  // namespace sluice::apps
