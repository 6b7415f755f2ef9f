// The small persistent folder of a run: its resolved config, metrics.jsonl, log.txt. The store lies in it too (RUN/store).
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "configs/read_config.h"
#include "configs/run_config.h"

namespace sluice::apps {

// Errors: Error(disk).
class RunDir {
 public:
  explicit RunDir(std::filesystem::path path) : path_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config_file() const { return path_ / "config.json"; }
  std::filesystem::path metrics_file() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path log_file() const { return path_ / "log.txt"; }

  bool has_store() const;
  void create() const;
  // Atomic: a reader sees the old or the new text.
  void write_config(const configs::RunConfig& config) const;
  configs::RunConfig read_config(configs::Purpose purpose) const;
  // Drops the lines of steps after `step`, which were never committed.
  void cut_metrics(uint64_t step) const;

 private:
  std::filesystem::path path_;
};

}  // namespace sluice::apps
