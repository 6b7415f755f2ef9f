// Chosen settings for people and as JSON.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/schedule_choice.h"

namespace sluice::apps {

std::string setting_text(const std::string& key, const configs::Json& value);  // "auto", "12", "13.8 GiB"
std::string chosen_text(const std::vector<SettingChoice>& settings);            // a line each: key, value, reason
// A table: setting, was, becomes, seconds before and after, why.
std::string choices_table(const std::vector<SettingChoice>& settings);
nlohmann::ordered_json choices_json(const std::vector<SettingChoice>& settings);

}  // namespace sluice::apps
