// What a training run tells about its steps: a line each, and metrics.jsonl.
#pragma once
#include <cstdio>
#include <filesystem>
#include <string>

#include "apps/step_facts.h"
#include "engine/trainer.h"

namespace sluice::apps {

// One line for people: loss, lr, grad_norm, clip_coef, tokens/s, step time, disk and copy GB/s, communication, ETA.
std::string step_line(const engine::StepReport& step, const StepFacts& facts);

// The same step as one line of metrics.jsonl (names: docs/design.md).
std::string metrics_line(const engine::StepReport& step, const StepFacts& facts);

// Appends whole lines. Thread-safe by the caller. Error(disk).
class MetricsFile {
 public:
  explicit MetricsFile(const std::filesystem::path& file);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  void append(const std::string& line);

 private:
  std::FILE* file_;
  std::string path_;
};

}  // namespace sluice::apps
