// The program as people run it: exit codes, what goes to standard output and what to standard error.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/paths.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kRecipe = source_dir() / "configs/smollm2-135m-nvme.json";

struct Result {
  int code;
  std::string out, err;
};

std::string read(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Arguments as the shell reads them.
Result sluice_command(const std::string& arguments) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("cli_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string out = folder / "out", err = folder / "err";
  const std::string line = "ASAN_OPTIONS=detect_leaks=0 " + (binary_dir() / "sluice").string() + " " + arguments + " >" + out + " 2>" + err;
  const int status = std::system(line.c_str());
  Result result{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(out), read(err)};
  std::filesystem::remove_all(folder);
  return result;
}

constexpr const char* kCommands[] = {"doctor", "prepare", "config", "plan", "train", "eval", "export", "inspect"};

TEST(Cli, HelpNamesEveryCommand) {
  const Result r = sluice_command("--help");
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.err, "");
  EXPECT_THAT(r.out, HasSubstr("--version"));
  for (const char* command : kCommands) EXPECT_THAT(r.out, HasSubstr(std::string("\n  ") + command + " "));
}

TEST(Cli, EachCommandHasHelp) {
  for (const char* command : kCommands) {
    const Result r = sluice_command(std::string(command) + " --help");
    EXPECT_EQ(r.code, 0) << command;
    EXPECT_EQ(r.err, "") << command;
    EXPECT_THAT(r.out, AllOf(HasSubstr(std::string("Usage: sluice ") + command), HasSubstr("--json"),
                             HasSubstr("--strict")))
        << command;
  }
  EXPECT_THAT(sluice_command("train --help").out, AllOf(HasSubstr("CONFIG"), HasSubstr("--set KEY=VALUE")));
}

TEST(Cli, Version) {
  EXPECT_THAT(sluice_command("--version").out, StartsWith("sluice 0."));
}

TEST(Cli, BadCommandLinesExitWith2) {
  struct Case {
    const char *arguments, *fragment;
  };
  const Case cases[] = {
      {"", "see sluice --help"},
      {"plan x.json --world 0", "--world: Value 0 not in range 1 to 65536"},
      {"confg x.json", "there is no command \"confg\" (did you mean \"config\"?); the commands are"},
      {"fly", "there is no command \"fly\"; the commands are"},
      {"--fast", "see sluice --help"},
      {"config", "needs a CONFIG, or --keys"},
      {"config a.json b.json", "see sluice config --help"},
      {"config --fast a.json", "see sluice config --help"},
      {"config no-such-file.json", "no-such-file.json: No such file"},
      {"config --set", "--set"},
      {"train a.json --nproc 0", "--nproc"},
  };
  for (const Case& c : cases) {
    const Result r = sluice_command(c.arguments);
    EXPECT_EQ(r.code, 2) << c.arguments;
    EXPECT_EQ(r.out, "") << c.arguments;
    EXPECT_THAT(r.err, AllOf(StartsWith("sluice: config error: "), HasSubstr(c.fragment))) << c.arguments;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  }
}

TEST(Cli, ConfigPrintsOrigins) {
  const Result r = sluice_command(
      "config " + kRecipe +
      " --set run.seed=7 --set 'execution.keep_graphs=\"all\"' --set model.trainable='[\"*mlp*\"]'");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  EXPECT_THAT(r.out, testing::ContainsRegex("run.seed +7 +--set\n"));
  EXPECT_THAT(r.out, testing::ContainsRegex("execution.keep_graphs +all +--set\n"));
  EXPECT_THAT(r.out, testing::ContainsRegex("steps +30 +.*smollm2-135m-nvme.json:8\n"));
  EXPECT_THAT(r.out, testing::ContainsRegex("train_batch_size +4 +derived: "));
  EXPECT_THAT(r.out, testing::ContainsRegex("storage.tile +2097152 +default\n"));
}

TEST(Cli, ConfigAsJson) {
  const Result r = sluice_command("config --json --set steps=31 " + kRecipe);
  EXPECT_EQ(r.code, 0) << r.err;
  const auto document = nlohmann::json::parse(r.out);
  EXPECT_EQ(document["config"]["steps"], 31);
  EXPECT_EQ(document["config"]["zero_optimization"]["offload_param"]["device"], "nvme");
  EXPECT_EQ(document["origins"]["steps"], "--set");
  EXPECT_TRUE(document["notes"].empty());
}

TEST(Cli, KeysListEverything) {
  EXPECT_THAT(sluice_command("config --keys").out,
              AllOf(HasSubstr("optimizer.params.lr\n"), HasSubstr("default 2097152")));
  const auto list = nlohmann::json::parse(sluice_command("config --keys --json").out);
  EXPECT_GT(list.size(), 60u);
}

TEST(Cli, ErrorsKeepStandardOutputEmptyWithJson) {
  const Result r = sluice_command("config --json --set optimizer.params.lr=fast " + kRecipe);
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(r.out, "");
  EXPECT_THAT(r.err,
              AllOf(HasSubstr("--set: optimizer.params.lr = \"fast\": not allowed; allowed: a number from 0"),
                    Not(HasSubstr("terminate"))));
}

}  // namespace
}  // namespace sluice
