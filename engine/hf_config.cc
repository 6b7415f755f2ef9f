#include "engine/hf_config.h"

#include <algorithm>
#include <string_view>

#include "engine/hf_config_keys.h"
#include "engine/json_keys.h"
#include "engine/plain_file.h"
#include "engine/stored_names.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;
using base::fail;
using Json = nlohmann::ordered_json;

// The family, by the class's name or, without one, by the model's type.
const FamilyName& read_family(const Json& json, const Keys& keys) {
  std::string name;
  if (keys.has("architectures")) {
    const Json& list = json.at("architectures");
    if (!list.is_array() || list.empty() || !list[0].is_string())
      keys.wrong("architectures", "a list of names");
    name = list[0].get<std::string>();
  } else {
    name = keys.text("model_type");
  }
  std::string supported;
  for (const FamilyName& family : family_names()) {
    if (name == family.architecture || (!keys.has("architectures") && name == family.type)) return family;
    if (family.trained) supported += fmt::format("{}{}", supported.empty() ? "" : ", ", family.architecture);
  }
  fail(ErrorKind::model, "{}: the model family {} is not supported; supported are {}", keys.where(),
       name.empty() ? "(neither architectures nor model_type is given)" : name, supported);
}

struct Rope {
  std::optional<double> theta;
  std::optional<RopeScaling> scaling;
};

// rope_scaling (v4), or rope_parameters (v5), which holds rope_theta as well.
Rope parse_rope(const Json& json, const std::string& where) {
  if (!json.is_object()) fail(ErrorKind::model, "{} is {}, it must be an object", where, json.dump());
  const Keys keys(json, where);
  if (json.contains("full_attention") || json.contains("sliding_attention"))
    fail(ErrorKind::model, "{}: rotary settings per layer type are not supported", where);
  const std::string type = keys.has("rope_type") ? keys.text("rope_type") : keys.text("type");
  if (keys.has("type") && keys.text("type") != type)
    fail(ErrorKind::model, "{}: rope_type and type disagree: {} and {}", where, type, keys.text("type"));
  Rope rope;
  if (keys.has("rope_theta")) rope.theta = keys.positive_number("rope_theta");
  RopeScaling scaling;
  std::vector<std::string_view> known = {"rope_type", "type", "rope_theta"};
  if (type == "linear") {
    scaling.type = RopeScaling::Type::linear;
    scaling.factor = keys.positive_number("factor");
    known.insert(known.end(), {"factor", "original_max_position_embeddings"});
  } else if (type == "llama3") {
    scaling.type = RopeScaling::Type::llama3;
    scaling.factor = keys.positive_number("factor");
    scaling.low_freq_factor = keys.positive_number("low_freq_factor");
    scaling.high_freq_factor = keys.positive_number("high_freq_factor");
    scaling.original_max_position = keys.positive("original_max_position_embeddings");
    if (scaling.high_freq_factor <= scaling.low_freq_factor)
      keys.wrong("high_freq_factor", "above low_freq_factor");
    known.insert(known.end(),
                 {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
  } else if (!type.empty() && type != "default") {
    fail(ErrorKind::model, "{}: rope type {} is not supported; supported are default, linear and llama3",
         where, type);
  }
  rope.scaling = scaling;
  for (const auto& [key, value] : json.items()) {
    const bool neutral = value.is_null() || (key == "partial_rotary_factor" && value == 1) ||
                         (key == "attention_factor" && value == 1);
    if (!neutral && std::find(known.begin(), known.end(), key) == known.end())
      fail(ErrorKind::model, "{}: the key {} ({}) is not known for rope type {}", where, key, value.dump(),
           type.empty() ? "default" : type);
  }
  return rope;
}

void read_rope(const Json& json, const Keys& keys, HfConfig& config) {
  Rope old_keys, new_keys;
  if (keys.has("rope_theta")) old_keys.theta = keys.positive_number("rope_theta");
  if (keys.has("rope_scaling")) {
    const Rope rope = parse_rope(json.at("rope_scaling"), keys.where() + ": rope_scaling");
    old_keys.scaling = rope.scaling;
    if (rope.theta && old_keys.theta && *rope.theta != *old_keys.theta)
      fail(ErrorKind::model, "{}: rope_scaling.rope_theta and rope_theta disagree", keys.where());
    if (rope.theta) old_keys.theta = rope.theta;
  } else if (json.contains("rope_scaling")) {
    old_keys.scaling = RopeScaling{};
  }
  if (keys.has("rope_parameters"))
    new_keys = parse_rope(json.at("rope_parameters"), keys.where() + ": rope_parameters");

  if (new_keys.theta && old_keys.theta && *new_keys.theta != *old_keys.theta)
    fail(ErrorKind::model, "{}: rope_parameters.rope_theta {} and rope_theta {} disagree", keys.where(),
         *new_keys.theta, *old_keys.theta);
  if (new_keys.scaling && old_keys.scaling && *new_keys.scaling != *old_keys.scaling)
    fail(ErrorKind::model, "{}: rope_parameters and rope_scaling disagree", keys.where());
  const std::optional<double> theta = new_keys.theta ? new_keys.theta : old_keys.theta;
  if (!theta)
    fail(ErrorKind::model,
         "{}: neither rope_parameters.rope_theta nor rope_theta is given; add \"rope_theta\": 10000.0 if the "
         "model was trained "
         "with that (Llama 1 and 2 were)",
         keys.where());
  config.rope_theta = *theta;
  config.rope_scaling = new_keys.scaling.value_or(old_keys.scaling.value_or(RopeScaling{}));
}

void read_sizes(const Keys& keys, HfConfig& config) {
  config.hidden = keys.positive("hidden_size");
  config.intermediate = keys.positive("intermediate_size");
  config.layers = keys.positive("num_hidden_layers");
  if (config.layers > 65536) keys.wrong("num_hidden_layers", "at most 65536");
  config.heads = keys.positive("num_attention_heads");
  config.kv_heads = keys.positive("num_key_value_heads", config.heads);
  config.vocab = keys.positive("vocab_size");
  config.max_positions = keys.positive("max_position_embeddings", 2048);
  if (!keys.has("head_dim") && config.family != Family::qwen3 && config.hidden % config.heads != 0)
    fail(ErrorKind::model,
         "{}: hidden_size {} is not a multiple of num_attention_heads {}, and head_dim is not given",
         keys.where(), config.hidden, config.heads);
  const bool qwen3 = config.family == Family::qwen3;  // whose class takes 128 when the file is silent
  config.head_dim = keys.positive("head_dim", qwen3 ? 128 : config.hidden / config.heads);
  if (config.heads % config.kv_heads != 0)
    fail(ErrorKind::model, "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}",
         keys.where(), config.heads, config.kv_heads);
  if (config.head_dim % 2 != 0)
    fail(ErrorKind::model, "{}: head_dim {} is odd; rotary embeddings need pairs", keys.where(),
         config.head_dim);
}

void read_llama(const Json& json, const Keys& keys, HfConfig& config) {
  read_sizes(keys, config);
  config.norm_eps = keys.positive_number("rms_norm_eps", 1e-6);
  const bool gemma = config.family == Family::gemma2 || config.family == Family::gemma3;
  if (!gemma) read_rope(json, keys, config);  // Gemma is planned by its sizes alone
  config.tied = keys.boolean("tie_word_embeddings", gemma);
  config.attention_bias = config.attention_out_bias = keys.boolean("attention_bias", false);
  if (config.family == Family::qwen2) config.attention_bias = true;
  config.qk_norm = config.family == Family::qwen3 || config.family == Family::gemma3;
  config.branch_norms = gemma;
  config.mlp_bias = keys.boolean("mlp_bias", false);
}

void read_gpt2(const Keys& keys, HfConfig& config) {
  config.hidden = keys.positive("n_embd", 768);
  config.layers = keys.positive("n_layer", 12);
  if (config.layers > 65536) keys.wrong("n_layer", "at most 65536");
  config.heads = config.kv_heads = keys.positive("n_head", 12);
  config.intermediate = keys.positive("n_inner", 4 * config.hidden);
  config.vocab = keys.positive("vocab_size", 50257);
  config.max_positions = keys.positive("n_positions", 1024);
  config.learned_positions = config.tied = true;
  if (config.hidden % config.heads != 0)
    fail(ErrorKind::model, "{}: n_embd {} is not a multiple of n_head {}", keys.where(), config.hidden, config.heads);
  config.head_dim = config.hidden / config.heads;
  config.norm_eps = keys.positive_number("layer_norm_epsilon", 1e-5);
  const auto dropout = [&](const char* key) {
    const double p = keys.number(key, 0.1);
    if (!(p >= 0 && p < 1)) keys.wrong(key, "from 0 to below 1");
    return p;
  };
  config.embedding_dropout = dropout("embd_pdrop");
  config.attention_dropout = dropout("attn_pdrop");
  config.residual_dropout = dropout("resid_pdrop");
}

void read_tokens(const Json& json, const Keys& keys, HfConfig& config) {
  if (keys.has("pad_token_id")) {
    const int64_t pad = keys.integer("pad_token_id");
    if (pad < -config.vocab || pad >= config.vocab) keys.wrong("pad_token_id", "inside the vocabulary");
    config.pad_token = pad < 0 ? pad + config.vocab : pad;
  }
  if (keys.has("bos_token_id")) config.bos_token = keys.integer("bos_token_id");
  if (!keys.has("eos_token_id")) return;
  const Json& eos = json.at("eos_token_id");
  for (const Json& id : eos.is_array() ? eos : Json::array({eos})) {
    if (!id.is_number_integer()) keys.wrong("eos_token_id", "an integer or a list of them");
    config.eos_tokens.push_back(id.get<int64_t>());
  }
}

std::string read_dtype(const Keys& keys) {
  const auto plain = [&](const char* key) {
    const std::string text = keys.text(key);
    return text.starts_with("torch.") ? text.substr(6) : text;
  };
  const std::string v4 = plain("torch_dtype"), v5 = plain("dtype");
  if (!v4.empty() && !v5.empty() && v4 != v5)
    fail(ErrorKind::model, "{}: dtype {} and torch_dtype {} disagree", keys.where(), v5, v4);
  return v5.empty() ? v4 : v5;
}

}  // namespace

const std::vector<FamilyName>& family_names() {
  static const std::vector<FamilyName> names{
      {Family::llama, "llama", "LlamaForCausalLM"},
      {Family::mistral, "mistral", "MistralForCausalLM"},
      {Family::qwen2, "qwen2", "Qwen2ForCausalLM"},
      {Family::qwen3, "qwen3", "Qwen3ForCausalLM"},
      {Family::gpt2, "gpt2", "GPT2LMHeadModel"},
      {Family::gemma2, "gemma2", "Gemma2ForCausalLM", /*trained=*/false},
      {Family::gemma3, "gemma3_text", "Gemma3ForCausalLM", /*trained=*/false},
  };
  return names;
}

const FamilyName& name_of(Family family) {
  const auto& names = family_names();
  return *std::find_if(names.begin(), names.end(), [&](const FamilyName& name) { return name.family == family; });
}

HfConfig parse_hf_config(const Json& json, const std::string& where) {
  if (!json.is_object()) fail(ErrorKind::model, "{} does not hold a JSON object", where);
  const Keys keys(json, where);
  HfConfig config;
  config.raw = json;
  const FamilyName& family = read_family(json, keys);
  config.family = family.family;
  config.architecture = family.architecture;
  check_config_keys(json, where, config.family);
  if (config.family == Family::gpt2) {
    read_gpt2(keys, config);
  } else {
    read_llama(json, keys, config);
  }
  read_tokens(json, keys, config);
  config.dtype = read_dtype(keys);
  config.initializer_range = keys.number("initializer_range", 0.02);
  return config;
}

HfConfig read_hf_config(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder))
    fail(ErrorKind::model, "the model folder {} does not exist", folder.string());
  const std::filesystem::path path = folder / "config.json";
  if (!std::filesystem::exists(path))
    fail(ErrorKind::model, "{} has no config.json; it is not a Hugging Face model folder", folder.string());
  const std::string text = read_text_file(path, ErrorKind::model, 16u << 20);
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) fail(ErrorKind::model, "{} is not valid JSON", path.string());
  HfConfig config = parse_hf_config(json, path.string());
  if (config.family == Family::gpt2 && stores_tensor(folder, "transformer.wte.weight")) config.prefix = "transformer.";
  return config;
}

}  // namespace sluice::engine
