// A folder with a tiny model, its config and one finished run; and the check that a refused command changes nothing.
#pragma once
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/apps/program.h"
#include "tests/paths.h"

namespace sluice::apps {

using Words = std::vector<std::string>;

std::string read_all(const std::filesystem::path& file);
void write_all(const std::filesystem::path& file, const std::string& text);
// Replaces the first `from` in the file; throws when there is none.
void edit(const std::filesystem::path& file, const std::string& from, const std::string& to);
void overwrite(const std::filesystem::path& file, uint64_t offset, const std::string& bytes);

class RunFixture : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // FOLDER/model, as it was made; FOLDER/config.json names it and the run FOLDER/run.
  void fresh_model() const;
  std::filesystem::path at(const std::string& name) const { return folder_ / name; }
  // FOLDER/run: a copy of a run of two steps.
  void fresh_run() const;
  static Words train(const Words& set = {}, const Words& more = {});
  static Words resume(const Words& set = {});

  ProgramResult run(const Words& arguments) const { return run_program(arguments, folder_, environment_); }
  // Must succeed; standard error is returned.
  std::string succeed(const Words& arguments) const;
  // Must end with the code and one message that has all fragments, print nothing else that looks like a failure, and leave every
  // file and folder as it was.
  void expect_refused(const Words& arguments, int code, const Words& fragments) const;
  nlohmann::json inspect(const std::string& run) const;
  size_t steps_written(const std::string& run) const;  // lines of metrics.jsonl

  std::filesystem::path folder_;
  std::map<std::string, std::string> environment_;

 private:
  std::map<std::string, std::string> snapshot() const;
};

// A file system of `size` ("4m") in memory; valid() is false where mounting is not allowed.
class SmallDisk {
 public:
  SmallDisk(std::filesystem::path folder, const std::string& size);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool valid() const { return valid_; }

 private:
  std::filesystem::path folder_;
  bool valid_;
};

}  // namespace sluice::apps
