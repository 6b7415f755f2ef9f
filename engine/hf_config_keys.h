// Which keys of config.json may be there.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "engine/hf_config.h"

namespace sluice::engine {

// Error(model) for a quantised source, an attention window, a key that asks for numbers we do not compute,
// and a key that nobody here knows. Keys that only describe generation or bookkeeping pass.
void check_config_keys(const nlohmann::ordered_json& json, const std::string& where, Family family);

}  // namespace sluice::engine
