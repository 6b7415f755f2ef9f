#include "engine/known_models.h"

#include <fmt/ranges.h>

#include "base/error.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;
using Json = nlohmann::ordered_json;

constexpr const char* kDefaultFamily = "llama";

struct Known {
  const char* name;
  const char* family;
  int64_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab;
  bool tied;
};
constexpr Known kKnown[] = {
    {"GPT-2-124M", "gpt2", 768, 3072, 12, 12, 12, 64, 50257, true},
    {"GPT-2-medium", "gpt2", 1024, 4096, 24, 16, 16, 64, 50257, true},
    {"GPT-2-large", "gpt2", 1280, 5120, 36, 20, 20, 64, 50257, true},
    {"GPT-2-XL", "gpt2", 1600, 6400, 48, 25, 25, 64, 50257, true},
    {"SmolLM2-135M", "llama", 576, 1536, 30, 9, 3, 64, 49152, true},
    {"Llama-3.2-1B", "llama", 2048, 8192, 16, 32, 8, 64, 128256, true},
    {"Llama-3.2-3B", "llama", 3072, 8192, 28, 24, 8, 128, 128256, true},
    {"Llama-3.1-8B", "llama", 4096, 14336, 32, 32, 8, 128, 128256, false},
    {"Llama-3-70B", "llama", 8192, 28672, 80, 64, 8, 128, 128256, false},
};

Json config_of(const Known& m) {
  if (m.family == std::string_view("gpt2"))
    return {{"n_embd", m.hidden}, {"n_inner", m.intermediate}, {"n_layer", m.layers}, {"n_head", m.heads}, {"vocab_size", m.vocab}};
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

const Known& known(const std::string& name) {
  for (const Known& model : kKnown)
    if (name == model.name) return model;
  base::fail(ErrorKind::config,
             "model.sizes: \"{}\" is no model that is known by name; known are {}. Others: give their sizes "
             "in braces, by "
             "config.json's own keys",
             name, fmt::join(known_models(), ", "));
}

const FamilyName& family_named(const std::string& type) {
  std::vector<std::string> types;
  for (const FamilyName& family : family_names()) {
    if (type == family.type) return family;
    types.emplace_back(family.type);
  }
  base::fail(ErrorKind::config, "model.family \"{}\" cannot be planned: the families that are built are {}", type, fmt::join(types, ", "));
}

}  // namespace

std::vector<std::string> known_models() {
  std::vector<std::string> names;
  for (const Known& model : kKnown) names.emplace_back(model.name);
  return names;
}

HfConfig model_of_sizes(const std::string& family, const Json& sizes) {
  const FamilyName* chosen = &family_named(family);
  Json config = sizes;
  if (sizes.is_string()) {
    const Known& model = known(sizes.get<std::string>());
    chosen = &family_named(model.family);
    if (family != kDefaultFamily && family != model.family)
      base::fail(ErrorKind::config, "model.family is \"{}\", but {} is of the family {}; leave model.family out", family, model.name,
                 model.family);
    config = config_of(model);
  }
  if (!config.contains("architectures") && !config.contains("model_type")) config["architectures"] = {chosen->architecture};
  if (chosen->family != Family::gpt2 && !config.contains("rope_theta") && !config.contains("rope_parameters"))
    config["rope_theta"] = 10000.0;  // moves no byte
  try {
    return parse_hf_config(config, "model.sizes");
  } catch (const base::Error& error) {
    throw base::Error(ErrorKind::config, error.what());
  }
}

}  // namespace sluice::engine
