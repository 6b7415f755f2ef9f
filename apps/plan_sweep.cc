#include "apps/plan_sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apps/plan_output.h"
#include "base/error.h"
#include "base/units.h"
#include "configs/json_text.h"
#include "configs/keys.h"
#include "configs/layers.h"

namespace sluice::apps {

using Json = nlohmann::ordered_json;

namespace {

[[noreturn]] void refuse(const std::string& argument, const std::string& why) {
  base::fail(base::ErrorKind::config, "--sweep {}: {}, for example --sweep gradient_accumulation_steps=[1,4,16]", argument, why);
}

// As --set takes it.
std::string word_of(const Json& value, const std::string& text) {
  return value.is_discarded() ? text : configs::plain(value);
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// [none,forward]: a shell takes the quotes from ["none","forward"], so bare words will do. Commas in quotes, brackets and braces are
// part of an item.
std::vector<std::string> items_of(const std::string& list) {
  std::vector<std::string> items{""};
  int depth = 0;
  bool quoted = false;
  for (const char c : list) {
    if (c == '"') quoted = !quoted;
    if (!quoted) depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (c == ',' && !quoted && depth == 0) {
      items.emplace_back();
    } else {
      items.back() += c;
    }
  }
  return items;
}

std::vector<std::string> values_of(const std::string& argument, const std::string& text) {
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> values;
  if (value.is_array()) {
    for (const Json& item : value) values.push_back(word_of(item, ""));
    if (values.empty()) refuse(argument, "the list is empty; give the values to plan with");
  } else if (value.is_discarded() && text.starts_with('[') && text.ends_with(']')) {
    for (const std::string& item : items_of(text.substr(1, text.size() - 2))) {
      values.push_back(word_of(Json::parse(item, nullptr, /*allow_exceptions=*/false), trimmed(item)));
      if (values.back().empty()) refuse(argument, "a value between two commas is empty");
    }
  } else {
    values.push_back(text);
  }
  return values;
}

void check_key(const std::string& key) {
  const bool known = configs::find_key(key) || configs::is_section(key) || key == "deepspeed";
  if (!known) configs::fail_unknown(key, {configs::Origin::Kind::command_line, "--sweep"});
}

// A swept value was given by --sweep, though it is set as --set does it.
std::string told(const std::string& error, const std::vector<Sweep>& sweeps) {
  for (const Sweep& sweep : sweeps)
    if (const std::string prefix = "--set: "; error.starts_with(prefix + sweep.key + " = ")) return "--sweep: " + error.substr(prefix.size());
  return error;
}

}  // namespace

std::vector<Sweep> read_sweeps(const std::vector<std::string>& arguments) {
  std::vector<Sweep> sweeps;
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    if (equals == 0 || equals == std::string::npos)
      refuse(argument, "write key=value");
    const std::string key = argument.substr(0, equals), text = argument.substr(equals + 1);
    check_key(key);
    auto sweep = std::find_if(sweeps.begin(), sweeps.end(), [&](const Sweep& s) { return s.key == key; });
    if (sweep == sweeps.end()) sweep = sweeps.insert(sweep, {key, {}});
    const std::vector<std::string> values = values_of(argument, text);
    sweep->values.insert(sweep->values.end(), values.begin(), values.end());
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
      row.error = told(error.what(), sweeps);
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
                        known(bottleneck(run)), need("gpu"), need("host"), need("disk"), known(base::format_bytes(static_cast<uint64_t>(run.disk_written()))));
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
