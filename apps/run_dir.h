// The small persistent folder of a run: its resolved config, metrics.jsonl, starts.jsonl, memory.json, log.txt. The store lies in it too (RUN/store).
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "configs/read_config.h"
#include "configs/run_config.h"

namespace sluice::apps {

// As a run's config is stored: paths absolute, so that the run can be read from any folder.
configs::RunConfig with_absolute_paths(configs::RunConfig config);

// Errors: Error(disk).
class RunDir {
 public:
  explicit RunDir(std::filesystem::path path) : path_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config_file() const { return path_ / "config.json"; }
  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path memory_file() const { return path_ / "memory.json"; }
  std::filesystem::path starts_file() const { return path_ / "starts.jsonl"; }
  std::filesystem::path log_file() const { return path_ / "log.txt"; }

  bool has_store() const;
  // Atomic: a reader sees the old or the new text. With absolute paths.
  void write_config(const configs::RunConfig& config) const;
  configs::RunConfig read_config(configs::Purpose purpose) const;
  // The same for a command that reads a run: what is no run is Error(config) that says why.
  configs::RunConfig read_run() const;
  // Drops the lines of steps after `step`, which were never committed; returns how many steps these are.
  uint64_t cut_metrics(uint64_t step) const;

 private:
  std::filesystem::path path_;
};

// Makes the folder of a new run and writes its config; takes both back unless keep() is called. A folder with another program's
// config.json is refused: Error(config).
class NewRun {
 public:
  NewRun(const RunDir& run, const configs::RunConfig& config);
  ~NewRun();
  NewRun(const NewRun&) = delete;
  NewRun& operator=(const NewRun&) = delete;
  void keep() { kept_ = true; }

 private:
  void take_back() noexcept;

  const RunDir run_;
  std::filesystem::path existing_;  // the nearest folder that was there before
  bool had_config_ = false, kept_ = false;
};

}  // namespace sluice::apps
