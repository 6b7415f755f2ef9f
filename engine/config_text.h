// Small edits of config.json that leave every other character of the file as it was.
#pragma once
#include <string>

namespace sluice::engine {

// Adds what is missing of the keys that transformers v4 and v5 call differently: torch_dtype and dtype,
// rope_theta with rope_scaling and rope_parameters. Text with nothing missing comes back unchanged. `text`
// has passed parse_hf_config.
std::string with_twin_keys(const std::string& text);

// Replaces the values of torch_dtype and dtype.
std::string with_dtype(const std::string& text, const std::string& dtype);

}  // namespace sluice::engine
