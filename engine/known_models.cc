#include "engine/known_models.h"

#include <fmt/ranges.h>

#include "base/error.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;
using Json = nlohmann::ordered_json;

struct Known {
  const char* name;
  int64_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab;
  bool tied;
};
constexpr Known kKnown[] = {
    {"SmolLM2-135M", 576, 1536, 30, 9, 3, 64, 49152, true},
    {"Llama-3.2-1B", 2048, 8192, 16, 32, 8, 64, 128256, true},
    {"Llama-3.2-3B", 3072, 8192, 28, 24, 8, 128, 128256, true},
    {"Llama-3.1-8B", 4096, 14336, 32, 32, 8, 128, 128256, false},
    {"Llama-3-70B", 8192, 28672, 80, 64, 8, 128, 128256, false},
};

Json config_of(const Known& m) {
  return {{"hidden_size", m.hidden},
          {"intermediate_size", m.intermediate},
          {"num_hidden_layers", m.layers},
          {"num_attention_heads", m.heads},
          {"num_key_value_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"vocab_size", m.vocab},
          {"tie_word_embeddings", m.tied},
          {"max_position_embeddings", 131072}};
}

Json sizes_of(const Json& sizes) {
  if (sizes.is_object()) return sizes;
  const auto name = sizes.get<std::string>();
  for (const Known& known : kKnown)
    if (name == known.name) return config_of(known);
  base::fail(ErrorKind::config,
             "model.sizes: \"{}\" is no model that is known by name; known are {}. Others: give their sizes "
             "in braces, by "
             "config.json's own keys",
             name, fmt::join(known_models(), ", "));
}

}  // namespace

std::vector<std::string> known_models() {
  std::vector<std::string> names;
  for (const Known& known : kKnown) names.emplace_back(known.name);
  return names;
}

HfConfig model_of_sizes(const std::string& family, const Json& sizes) {
  if (family != "llama" && family != "mistral")
    base::fail(ErrorKind::config,
               "model.family \"{}\" cannot be planned: the families that are built are llama and mistral",
               family);
  Json config = sizes_of(sizes);
  if (!config.contains("architectures") && !config.contains("model_type"))
    config["architectures"] = {family == "llama" ? "LlamaForCausalLM" : "MistralForCausalLM"};
  if (!config.contains("rope_theta") && !config.contains("rope_parameters"))
    config["rope_theta"] = 10000.0;  // moves no byte
  try {
    return parse_hf_config(config, "model.sizes");
  } catch (const base::Error& error) {
    throw base::Error(ErrorKind::config, error.what());
  }
}

}  // namespace sluice::engine
