#include "apps/run_metrics.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace sluice::apps {
namespace {

using nlohmann::json;

void flatten(const std::string& prefix, const json& object, std::map<std::string, double>& values) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) flatten(prefix + key + ".", value, values);
    if (value.is_number()) values[prefix + key] = value.get<double>();
    if (value.is_boolean()) values[prefix + key] = value.get<bool>() ? 1 : 0;
  }
}

void add(const json& line, RunMetrics& metrics) {
  const uint64_t step = line.at("step").get<uint64_t>();
  if (line.contains("event")) {
    metrics.events.push_back({step, line.at("event").get<std::string>(), line.at("text").get<std::string>()});
  } else if (line.contains("commit_seconds")) {
    metrics.commits.push_back({step, line.at("commit_seconds").get<double>(), line.value("commit_bytes", 0.0)});
  } else if (line.contains("eval_loss")) {
    metrics.evaluations.push_back({step, line.at("eval_loss").get<double>(), line.value("eval_seconds", 0.0), line.value("time", 0.0)});
  } else {
    flatten("", line, metrics.steps.emplace_back(StepFigures{step, {}}).values);
  }
}

}  // namespace

double StepFigures::written() const {
  for (const char* key : {"disk.written", "bytes.disk_write"})
    if (const auto found = values.find(key); found != values.end()) return found->second;
  return 0;
}

offload::ExecutorStats lanes_of(const StepFigures& step) {
  offload::ExecutorStats stats;
  for (size_t l = 0; l < offload::kLanes; ++l) {
    const std::string lane = fmt::format("lanes.{}.", offload::to_string(static_cast<offload::Lane>(l)));
    if (const auto seconds = step.values.find(lane + "seconds"); seconds != step.values.end()) stats.busy[l] = seconds->second;
    if (const auto bytes = step.values.find(lane + "bytes"); bytes != step.values.end()) stats.bytes[l] = static_cast<uint64_t>(bytes->second);
  }
  return stats;
}

RunMetrics read_metrics(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) base::fail(base::ErrorKind::disk, "cannot read {}", file.string());
  RunMetrics metrics;
  uint64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const json parsed = json::parse(line, nullptr, false);
    if (parsed.is_discarded() && in.peek() == std::char_traits<char>::eof()) break;
    try {
      add(parsed, metrics);
    } catch (const json::exception& e) {
      base::fail(base::ErrorKind::data, "{}:{}: this is no line of a run's metrics ({})", file.string(), number, e.what());
    }
  }
  return metrics;
}

}  // namespace sluice::apps
