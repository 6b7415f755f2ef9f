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
    {"Qwen2.5-0.5B", "qwen2", 896, 4864, 24, 14, 2, 64, 151936, true},
    {"Qwen2.5-1.5B", "qwen2", 1536, 8960, 28, 12, 2, 128, 151936, true},
    {"Qwen2.5-3B", "qwen2", 2048, 11008, 36, 16, 2, 128, 151936, true},
    {"Qwen2.5-7B", "qwen2", 3584, 18944, 28, 28, 4, 128, 152064, false},
    {"Qwen2.5-14B", "qwen2", 5120, 13824, 48, 40, 8, 128, 152064, false},
    {"Qwen2.5-32B", "qwen2", 5120, 27648, 64, 40, 8, 128, 152064, false},
    {"Qwen2.5-72B", "qwen2", 8192, 29568, 80, 64, 8, 128, 152064, false},
    {"Qwen3-0.6B", "qwen3", 1024, 3072, 28, 16, 8, 128, 151936, true},
    {"Qwen3-1.7B", "qwen3", 2048, 6144, 28, 16, 8, 128, 151936, true},
    {"Qwen3-4B", "qwen3", 2560, 9728, 36, 32, 8, 128, 151936, true},
    {"Qwen3-8B", "qwen3", 4096, 12288, 36, 32, 8, 128, 151936, false},
    {"Qwen3-14B", "qwen3", 5120, 17408, 40, 40, 8, 128, 151936, false},
    {"Qwen3-32B", "qwen3", 5120, 25600, 64, 64, 8, 128, 151936, false},
    {"Gemma-2-2B", "gemma2", 2304, 9216, 26, 8, 4, 256, 256000, true},
    {"Gemma-2-9B", "gemma2", 3584, 14336, 42, 16, 8, 256, 256000, true},
    {"Gemma-2-27B", "gemma2", 4608, 36864, 46, 32, 16, 128, 256000, true},
    {"Gemma-3-270M", "gemma3_text", 640, 2048, 18, 4, 1, 256, 262144, true},
    {"Gemma-3-1B", "gemma3_text", 1152, 6912, 26, 4, 1, 256, 262144, true},
    {"Gemma-3-4B", "gemma3_text", 2560, 10240, 34, 8, 4, 256, 262208, true},
    {"Gemma-3-12B", "gemma3_text", 3840, 15360, 48, 16, 8, 256, 262208, true},
    {"Gemma-3-27B", "gemma3_text", 5376, 21504, 62, 32, 16, 128, 262208, true},
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
