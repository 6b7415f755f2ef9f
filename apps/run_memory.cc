#include "apps/run_memory.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace sluice::apps {

const char* how_known(const engine::MemoryRow& row) { return row.measured ? "measured" : row.estimated ? "estimated" : "exact"; }

namespace {

using Json = nlohmann::ordered_json;

Json row_json(const engine::MemoryRow& row) {
  return {{"place", row.place},
          {"purpose", row.purpose},
          {"need", row.bytes},
          {"known", how_known(row)},
          {"beside", row.beside}};
}

engine::MemoryRow row_of(const Json& json) {
  const std::string known = json.at("known");
  return {json.at("place"), json.at("purpose"), json.at("need"), known == "measured", known == "estimated", json.at("beside")};
}

Json peaks_json(const MemoryPeaks& peaks) {
  const base::ProcessMemory& p = peaks.process;
  return {{"gpu", peaks.gpu},      {"host", peaks.host},       {"resident", p.resident_peak},
          {"locked", p.locked},    {"swapped", p.swapped},     {"page_cache", p.page_cache}};
}

MemoryPeaks peaks_of(const Json& json) {
  MemoryPeaks peaks{json.at("gpu"), json.at("host"), {}};
  peaks.process.resident_peak = json.at("resident");
  peaks.process.locked = json.at("locked");
  peaks.process.swapped = json.at("swapped");
  peaks.process.page_cache = json.at("page_cache");
  return peaks;
}

}  // namespace

uint64_t RunMemory::need(const std::string& place) const {
  uint64_t sum = 0;
  for (const engine::MemoryRow& row : planned.rows)
    if (row.place == place && !row.beside) sum += row.bytes;
  return sum;
}

void write_run_memory(const RunMemory& memory, const std::filesystem::path& file) {
  const engine::MemoryReport& m = memory.planned;
  Json rows = Json::array();
  for (const engine::MemoryRow& row : m.rows) rows.push_back(row_json(row));
  const Json document{{"rows", rows},
                      {"have", {{"gpu", m.gpu_have}, {"host", m.host_have}, {"disk", m.disk_have}}},
                      {"peak", memory.peaks ? peaks_json(*memory.peaks) : Json(nullptr)}};
  std::ofstream out(file, std::ios::trunc);
  out << document.dump(2) << '\n';
  if (!out.flush()) base::fail(base::ErrorKind::disk, "cannot write {}", file.string());
}

std::optional<RunMemory> read_run_memory(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) return std::nullopt;
  try {
    const Json document = Json::parse(in);
    RunMemory memory;
    for (const Json& row : document.at("rows")) memory.planned.rows.push_back(row_of(row));
    const Json& have = document.at("have");
    memory.planned.gpu_have = have.at("gpu");
    memory.planned.host_have = have.at("host");
    memory.planned.disk_have = have.at("disk");
    if (!document.at("peak").is_null()) memory.peaks = peaks_of(document.at("peak"));
    return memory;
  } catch (const nlohmann::json::exception& e) {
    base::fail(base::ErrorKind::data, "{}: this is no memory table of a run ({})", file.string(), e.what());
  }
}

}  // namespace sluice::apps
