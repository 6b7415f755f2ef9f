#include "apps/plan_sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apps/plan_output.h"
#include "base/error.h"
#include "base/units.h"

namespace sluice::apps {

using Json = nlohmann::ordered_json;

std::vector<Sweep> read_sweeps(const std::vector<std::string>& arguments) {
  std::vector<Sweep> sweeps;
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    if (equals == 0 || equals == std::string::npos)
      base::fail(base::ErrorKind::config,
                 "--sweep {}: write key=value, for example --sweep gradient_accumulation_steps=[1,4,16]",
                 argument);
    const std::string key = argument.substr(0, equals), text = argument.substr(equals + 1);
    auto sweep = std::find_if(sweeps.begin(), sweeps.end(), [&](const Sweep& s) { return s.key == key; });
    if (sweep == sweeps.end()) sweep = sweeps.insert(sweep, {key, {}});
    const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!value.is_array()) {
      sweep->values.push_back(text);
      continue;
    }
    for (const Json& item : value)
      sweep->values.push_back(item.is_string() ? item.get<std::string>() : item.dump());
  }
  return sweeps;
}

std::vector<SweepRow> run_sweep(const std::vector<Sweep>& sweeps,
                                const std::function<PlannedRun(const std::vector<std::string>& set)>& plan) {
  std::vector<std::vector<std::string>> sets{{}};
  for (const Sweep& sweep : sweeps) {
    std::vector<std::vector<std::string>> longer;
    for (const auto& set : sets)
      for (const std::string& value : sweep.values) {
        longer.push_back(set);
        longer.back().push_back(sweep.key + "=" + value);
      }
    sets = std::move(longer);
  }
  std::vector<SweepRow> rows;
  for (auto& set : sets) {
    SweepRow row{set, {}, ""};
    try {
      row.run = plan(set);
    } catch (const base::Error& error) {
      if (error.kind() == base::ErrorKind::bug) throw;
      row.error = error.what();
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string sweep_text(const std::vector<SweepRow>& rows) {
  size_t width = 8;
  for (const SweepRow& row : rows) width = std::max(width, fmt::format("{}", fmt::join(row.set, " ")).size());
  std::string text =
      fmt::format("{:<{}}  {:>5} {:>10} {:>10} {:>8} {:>10} {:>10} {:>10} {:>10}\n", "settings", width,
                  "fits", "step", "tokens/s", "bound", "gpu", "host", "disk", "written");
  for (const SweepRow& row : rows) {
    text += fmt::format("{:<{}}  ", fmt::format("{}", fmt::join(row.set, " ")), width);
    if (!row.run) {
      text += row.error + "\n";
      continue;
    }
    const PlannedRun& run = *row.run;
    const auto need = [&](const char* place) { return base::format_bytes(run.need(place)); };
    const auto known = [&](std::string figure) { return run.timed() ? std::move(figure) : "?"; };
    text += fmt::format("{:>5} {:>10} {:>10} {:>8} {:>10} {:>10} {:>10} {:>10}\n", run.fits() ? "yes" : "no",
                        known(base::format_duration(run.plan.simulation.step_seconds)), known(fmt::format("{:.1f}", run.tokens_per_second())),
                        known(bottleneck(run)), need("gpu"), need("host"), need("disk"), known(base::format_bytes(run.disk_written())));
  }
  return text;
}

Json sweep_json(const std::vector<SweepRow>& rows) {
  Json list = Json::array();
  for (const SweepRow& row : rows) {
    Json entry{{"set", row.set}};
    if (row.run) {
      entry.update(plan_json(*row.run));
    } else {
      entry["error"] = row.error;
    }
    list.push_back(std::move(entry));
  }
  return {{"sweep", list}};
}

}  // namespace sluice::apps
