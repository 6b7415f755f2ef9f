#include "engine/hf_config_keys.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;
using base::fail;
using Json = nlohmann::ordered_json;

// Whether a list of words, each followed by a space, holds the key.
bool lists(std::string_view words, std::string_view key) {
  if (key.empty() || key.find(' ') != std::string_view::npos) return false;
  for (size_t at = 0; (at = words.find(key, at)) != std::string_view::npos; ++at)
    if ((at == 0 || words[at - 1] == ' ') && words[at + key.size()] == ' ') return true;
  return false;
}

// Keys that parse_hf_config reads.
constexpr std::string_view kRead =
    "architectures model_type hidden_size intermediate_size num_hidden_layers num_attention_heads "
    "num_key_value_heads head_dim vocab_size max_position_embeddings rms_norm_eps rope_theta "
    "rope_scaling rope_parameters tie_word_embeddings attention_bias mlp_bias pad_token_id bos_token_id "
    "eos_token_id torch_dtype dtype initializer_range quantization_config sliding_window ";
constexpr std::string_view kReadGpt2 =
    "architectures model_type n_embd n_layer n_head n_inner n_positions vocab_size layer_norm_epsilon embd_pdrop attn_pdrop "
    "resid_pdrop pad_token_id bos_token_id eos_token_id torch_dtype dtype initializer_range quantization_config "
    "n_ctx summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout gradient_checkpointing ";

// Keys that say nothing about the numbers of training.
constexpr std::string_view kHarmless =
    "_name_or_path _attn_implementation _attn_implementation_autoset attn_implementation "
    "transformers_version transformers.js_config unsloth_version unsloth_fixed use_cache "
    "is_llama_config max_window_layers output_attentions output_hidden_states output_scores return_dict "
    "return_dict_in_generate torchscript id2label label2id num_labels problem_type finetuning_task "
    "task_specific_params tokenizer_class prefix tf_legacy_loss use_bfloat16 sep_token_id "
    "decoder_start_token_id temperature top_k top_p typical_p max_length min_length max_new_tokens "
    "do_sample early_stopping num_beams num_beam_groups num_return_sequences diversity_penalty "
    "length_penalty repetition_penalty encoder_no_repeat_ngram_size no_repeat_ngram_size bad_words_ids "
    "begin_suppress_tokens suppress_tokens forced_bos_token_id forced_eos_token_id "
    "remove_invalid_values exponential_decay_length_penalty ";

// Keys that change numbers unless they have one of these values (JSON), which is what we implement.
using NeutralValues = std::unordered_map<std::string_view, std::vector<Json>>;
const NeutralValues& neutral_values(Family family) {
  static const NeutralValues gpt2 = {
      {"activation_function", {"gelu_new", "gelu_pytorch_tanh"}},  // one formula, two names
      {"scale_attn_weights", {true}},
      {"scale_attn_by_inverse_layer_idx", {false}},
      {"reorder_and_upcast_attn", {false, true}},  // we always compute attention in fp32
      {"tie_word_embeddings", {true}},
      {"chunk_size_feed_forward", {0}},
      {"pruned_heads", {Json::object(), nullptr}},
      {"is_decoder", {false, true}},
      {"is_encoder_decoder", {false}},
      {"add_cross_attention", {false}},
      {"cross_attention_hidden_size", {nullptr}},
      {"tie_encoder_decoder", {false}},
  };
  static const NeutralValues table = {
      {"hidden_act", {"silu"}},
      {"attention_dropout", {0, nullptr}},
      {"attn_pdrop", {0, nullptr}},
      {"resid_pdrop", {0, nullptr}},
      {"embd_pdrop", {0, nullptr}},
      {"hidden_dropout", {0, nullptr}},
      {"pretraining_tp", {1, nullptr}},
      {"partial_rotary_factor", {1, nullptr}},
      {"rope_interleaved", {false, nullptr}},
      {"use_sliding_window", {false, nullptr}},
      {"chunk_size_feed_forward", {0}},
      {"pruned_heads", {Json::object(), nullptr}},
      {"is_decoder", {false, true}},
      {"is_encoder_decoder", {false}},
      {"add_cross_attention", {false}},
      {"cross_attention_hidden_size", {nullptr}},
      {"tie_encoder_decoder", {false}},
  };
  return family == Family::gpt2 ? gpt2 : table;
}

}  // namespace

void check_config_keys(const Json& json, const std::string& where, Family family) {
  // Biases that the family's class never has, or (Qwen2's on q, k and v) always.
  const std::string_view fixed = family == Family::mistral || family == Family::qwen2 ? "attention_bias mlp_bias "
                                 : family == Family::qwen3                            ? "mlp_bias "
                                                                                      : "";
  const NeutralValues& neutral = neutral_values(family);
  const std::string_view read = family == Family::gpt2 ? kReadGpt2 : kRead;
  if (const auto it = json.find("quantization_config"); it != json.end() && !it->is_null())
    fail(
        ErrorKind::model,
        "{}: quantised source (quantization_config is set); training needs the weights in bf16, fp16 or fp32",
        where);
  if (family == Family::gemma2 || family == Family::gemma3) return;  // planned by sizes alone: nothing is computed
  const bool qwen = family == Family::qwen2 || family == Family::qwen3;  // has a window only with use_sliding_window
  if (const auto it = json.find("sliding_window"); it != json.end() && !it->is_null() && !qwen)
    fail(ErrorKind::model, "{}: sliding_window is {}; attention windows are not supported (null is)", where,
         it->dump());
  if (const auto it = json.find("layer_types"); it != json.end() && !it->is_null())
    for (const Json& type : *it)
      if (type != "full_attention")
        fail(ErrorKind::model, "{}: layer_types holds {}; only full_attention is supported", where,
             type.dump());
  for (const auto& [key, value] : json.items()) {
    if (const auto it = neutral.find(key); it != neutral.end()) {
      if (std::find(it->second.begin(), it->second.end(), value) == it->second.end())
        fail(ErrorKind::model, "{}: {} is {}; only {} is supported", where, key, value.dump(),
             it->second[0].dump());
    } else if (lists(fixed, key) && value != false && !value.is_null()) {
      fail(ErrorKind::model, "{}: {} is {}, but {} has no such choice", where, key, value.dump(), name_of(family).architecture);
    } else if (key != "layer_types" && !lists(read, key) && !lists(kHarmless, key)) {
      fail(ErrorKind::model,
           "{}: the key {} ({}) is not known here and might change numbers; remove it if it is only a note",
           where, key, value.dump().substr(0, 80));
    }
  }
}

}  // namespace sluice::engine
