#include "apps/run_starts.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace sluice::apps {
namespace {

using Json = nlohmann::ordered_json;

Json ceilings_json(const Ceilings& c) {
  return {{"disk_read", c.disk_read}, {"disk_write", c.disk_write}, {"h2d", c.h2d}, {"d2h", c.d2h}, {"compute", c.compute}};
}

RunStart start_of(const Json& json) {
  RunStart start{json.at("step"), json.at("steps_lost"), json.at("open_seconds"), json.at("flops_per_step"), json.at("device"), {}};
  if (const Json& c = json.at("ceilings"); !c.is_null())
    start.ceilings = Ceilings{c.at("disk_read"), c.at("disk_write"), c.at("h2d"), c.at("d2h"), c.at("compute")};
  return start;
}

}  // namespace

void append_start(const RunStart& start, const std::filesystem::path& file) {
  const Json line{{"step", start.step},
                  {"steps_lost", start.steps_lost},
                  {"open_seconds", start.open_seconds},
                  {"flops_per_step", start.flops_per_step},
                  {"device", start.device},
                  {"ceilings", start.ceilings ? ceilings_json(*start.ceilings) : Json(nullptr)}};
  std::ofstream out(file, std::ios::app);
  out << line.dump() << '\n';
  if (!out.flush()) base::fail(base::ErrorKind::disk, "cannot write {}", file.string());
}

std::vector<RunStart> read_starts(const std::filesystem::path& file) {
  std::vector<RunStart> starts;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const Json parsed = Json::parse(line, nullptr, false);
    if (parsed.is_discarded() && in.peek() == std::char_traits<char>::eof()) break;
    try {
      starts.push_back(start_of(parsed));
    } catch (const nlohmann::json::exception& e) {
      base::fail(base::ErrorKind::data, "{}: this is no line about a start of a run ({})", file.string(), e.what());
    }
  }
  return starts;
}

}  // namespace sluice::apps
