// config.json of a Hugging Face folder (transformers v4 and v5), read strictly: a key that would change
// numbers and that we do not implement is an error.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace sluice::engine {

struct RopeScaling {  // llama3 or linear; see docs/design.md for the formula
  enum class Type { none, linear, llama3 } type = Type::none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_position = 0;
  bool operator==(const RopeScaling&) const = default;
};

enum class Family : uint8_t { llama, mistral, qwen2, qwen3, gpt2, gemma2, gemma3 };

// How a family is called in config.json.
struct FamilyName {
  Family family;
  const char* type;          // model_type, and our "model.family": "gpt2"
  const char* architecture;  // "GPT2LMHeadModel"
  bool trained = true;       // false: only planned, its math is not built
};
const std::vector<FamilyName>& family_names();
const FamilyName& name_of(Family family);

struct HfConfig {
  Family family = Family::llama;
  std::string architecture;  // "LlamaForCausalLM"
  std::string prefix;        // of every tensor name; GPT-2 files have "" or "transformer."
  int64_t hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0,
          max_positions = 0;
  double norm_eps = 1e-6, rope_theta = 0;
  RopeScaling rope_scaling;
  bool tied = false, mlp_bias = false;
  bool attention_bias = false, attention_out_bias = false;  // of q, k and v; of the projection after them
  bool qk_norm = false;         // an RMSNorm over head_dim on q and on k, before the rotation
  bool branch_norms = false;    // another two norms a layer, on what its branches add (Gemma)
  bool learned_positions = false;  // a matrix of max_positions rows: no longer sequence can be trained
  double embedding_dropout = 0, attention_dropout = 0, residual_dropout = 0;  // probabilities
  std::optional<int64_t> pad_token;  // 0 .. vocab - 1, also where the file counts from the end (-1)
  std::optional<int64_t> bos_token;
  std::vector<int64_t> eos_tokens;
  std::string dtype;  // "bfloat16", "float32", ... of the stored weights; empty when the file does not say
  double initializer_range = 0.02;
  nlohmann::ordered_json raw;  // the file as it was
};

// Error(model): missing or malformed file, unsupported family (names it), quantised source, window,
// unsupported rope, ...
HfConfig read_hf_config(const std::filesystem::path& folder);
HfConfig parse_hf_config(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace sluice::engine
