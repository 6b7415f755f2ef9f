// Models that are planned by their sizes, without files.
#pragma once
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/hf_config.h"

namespace sluice::engine {

// Names of well-known models ("Llama-3.1-8B"), by family and size.
std::vector<std::string> known_models();

// family: a FamilyName's type. sizes: the name of a known model, whose own family counts then, or an object with config.json's own
// keys (hidden_size, ... or n_embd, ...; others as far as they differ from the usual). Error(config) for a family or name that is not
// known and for sizes that cannot be.
HfConfig model_of_sizes(const std::string& family, const nlohmann::ordered_json& sizes);

}  // namespace sluice::engine
