#include "apps/schedule_output.h"

#include <fmt/format.h>

#include "base/units.h"
#include "configs/json_text.h"

namespace sluice::apps {

std::string setting_text(const std::string& key, const configs::Json& value) {
  if (key.starts_with("memory.") && value.is_number_unsigned()) return base::format_bytes(value.get<uint64_t>());
  if (key.starts_with("memory.") && value.is_string() && value != "auto") return base::format_bytes(base::parse_bytes(value.get<std::string>()));
  return configs::plain(value);
}

std::string chosen_text(const std::vector<SettingChoice>& settings) {
  std::string text;
  for (const SettingChoice& s : settings) text += fmt::format("{:<16} {} = {}: {}\n", "chosen", s.key, setting_text(s.key, s.becomes), s.reason);
  return text;
}

std::string choices_table(const std::vector<SettingChoice>& settings) {
  std::string text = fmt::format("{:<34} {:>10} {:>10} {:>10} {:>10}  {}\n", "setting", "was", "becomes", "step was", "becomes", "why");
  for (const SettingChoice& s : settings)
    text += fmt::format("{:<34} {:>10} {:>10} {:>10} {:>10}  {}\n", s.key, setting_text(s.key, s.was), setting_text(s.key, s.becomes),
                        s.before > 0 ? fmt::format("{:.4g} s", s.before) : "no fit", s.after > 0 ? fmt::format("{:.4g} s", s.after) : "no fit", s.reason);
  return text;
}

nlohmann::ordered_json choices_json(const std::vector<SettingChoice>& settings) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const SettingChoice& s : settings)
    list.push_back({{"key", s.key},
                    {"was", s.was},
                    {"becomes", s.becomes},
                    {"step_seconds_before", s.before > 0 ? Json(s.before) : Json(nullptr)},
                    {"step_seconds_after", s.after > 0 ? Json(s.after) : Json(nullptr)},
                    {"reason", s.reason}});
  return list;
}

}  // namespace sluice::apps
