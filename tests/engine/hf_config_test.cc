#include "engine/hf_config.h"

#include "tests/engine/files_util.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;
using Json = nlohmann::ordered_json;

Json v4() {
  return Json::parse(
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": null, "hidden_act": "silu", "attention_bias": false,
    "attention_dropout": 0.0, "pretraining_tp": 1, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "bos_token_id": 1,
    "eos_token_id": [2, 3], "use_cache": true, "transformers_version": "4.46.0", "initializer_range": 0.02})");
}

Json v5() {
  Json json = v4();
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json.erase("torch_dtype");
  json["dtype"] = "bfloat16";
  json["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "default"}};
  return json;
}

HfConfig parse(const Json& json) {
  return parse_hf_config(json, "config.json");
}

void refuses(const std::string& text, Json json, const std::string& key, const Json& value) {
  json[key] = value;
  SCOPED_TRACE(key + " = " + value.dump());
  expect_error(ErrorKind::model, text, [&] { parse(json); });
}

TEST(HfConfig, ReadsBothGenerations) {
  for (const Json& json : {v4(), v5()}) {
    const HfConfig c = parse(json);
    EXPECT_EQ(c.architecture, "LlamaForCausalLM");
    EXPECT_EQ(c.hidden, 64);
    EXPECT_EQ(c.kv_heads, 2);
    EXPECT_EQ(c.head_dim, 16);
    EXPECT_EQ(c.rope_theta, 500000.0);
    EXPECT_EQ(c.rope_scaling.type, RopeScaling::Type::none);
    EXPECT_EQ(c.norm_eps, 1e-5);
    EXPECT_TRUE(c.tied);
    EXPECT_EQ(c.dtype, "bfloat16");
    EXPECT_EQ(c.eos_tokens, (std::vector<int64_t>{2, 3}));
    EXPECT_FALSE(c.pad_token.has_value());
  }
}

TEST(HfConfig, FillsWhatMayBeMissing) {
  Json json = v4();
  for (const char* key :
       {"num_key_value_heads", "tie_word_embeddings", "torch_dtype", "architectures", "eos_token_id"})
    json.erase(key);
  json["head_dim"] = 32;
  const HfConfig c = parse(json);
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_FALSE(c.tied);
  EXPECT_EQ(c.dtype, "");
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
}

TEST(HfConfig, CountsAPadTokenFromTheEnd) {
  Json json = v4();
  json["pad_token_id"] = -1;
  EXPECT_EQ(parse(json).pad_token, 99);
  json["pad_token_id"] = 7;
  EXPECT_EQ(parse(json).pad_token, 7);
  refuses("inside the vocabulary", v4(), "pad_token_id", 100);
}

TEST(HfConfig, ReadsRopeScaling) {
  const Json llama3 = {{"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192},
                       {"rope_type", "llama3"}};
  Json json = v4();
  json["rope_scaling"] = llama3;
  const HfConfig c = parse(json);
  EXPECT_EQ(c.rope_scaling.type, RopeScaling::Type::llama3);
  EXPECT_EQ(c.rope_scaling.original_max_position, 8192);

  Json both = json;  // as real files of v5 have it
  both["rope_parameters"] = llama3;
  both["rope_parameters"]["rope_theta"] = 500000.0;
  EXPECT_EQ(parse(both).rope_scaling, c.rope_scaling);
  both["rope_theta"] = 10000.0;
  expect_error(ErrorKind::model, "disagree", [&] { parse(both); });
  both["rope_theta"] = 500000.0;
  both["rope_scaling"]["factor"] = 4.0;
  expect_error(ErrorKind::model, "disagree", [&] { parse(both); });
  both["rope_scaling"] = nullptr;
  expect_error(ErrorKind::model, "disagree", [&] { parse(both); });

  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(parse(json).rope_scaling.type, RopeScaling::Type::linear);
  EXPECT_EQ(parse(json).rope_scaling.factor, 2.0);
}

TEST(HfConfig, RefusesRopeItDoesNotKnow) {
  refuses("yarn", v4(), "rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}});
  refuses("dynamic", v4(), "rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}});
  refuses("low_freq_factor", v4(), "rope_scaling", {{"rope_type", "llama3"}, {"factor", 2.0}});
  refuses("mscale", v4(), "rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}, {"mscale", 1.0}});
  refuses("disagree", v4(), "rope_scaling", {{"rope_type", "linear"}, {"type", "default"}, {"factor", 2.0}});
  refuses("partial_rotary_factor", v4(), "partial_rotary_factor", 0.5);
  refuses("partial_rotary_factor", v5(), "rope_parameters",
          {{"rope_type", "default"}, {"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}});
  refuses("per layer type", v5(), "rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}});
  refuses("rope_theta", v5(), "rope_parameters", nullptr);
}

TEST(HfConfig, RefusesOtherFamilies) {
  refuses("BertForMaskedLM", v4(), "architectures", {"BertForMaskedLM"});
  refuses("list of names", v4(), "architectures", Json::array());
  Json json = v4();
  json.erase("architectures");
  refuses("bert", json, "model_type", "bert");
}

TEST(HfConfig, ReadsQwen) {
  Json json = v4();
  json["architectures"] = {"Qwen2ForCausalLM"};
  json["sliding_window"] = 131072;  // without use_sliding_window it says nothing
  json["use_sliding_window"] = false;
  json["max_window_layers"] = 21;
  json.erase("attention_bias");
  HfConfig c = parse(json);
  EXPECT_EQ(c.family, Family::qwen2);
  EXPECT_TRUE(c.attention_bias);
  EXPECT_FALSE(c.attention_out_bias);
  EXPECT_FALSE(c.qk_norm);
  refuses("use_sliding_window", json, "use_sliding_window", true);
  refuses("no such choice", json, "attention_bias", true);
  refuses("sliding_attention", json, "layer_types", {"full_attention", "sliding_attention"});
  json["architectures"] = {"Qwen3ForCausalLM"};
  c = parse(json);
  EXPECT_TRUE(c.qk_norm);
  EXPECT_FALSE(c.attention_bias);
  EXPECT_EQ(c.head_dim, 128);
  json["attention_bias"] = true;
  c = parse(json);
  EXPECT_TRUE(c.attention_bias && c.attention_out_bias);
  refuses("sliding_window is 7", v4(), "sliding_window", 7);
}

Json gpt2() {
  return Json::parse(
      R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
    "embd_pdrop": 0.2, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024,
    "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.3, "summary_activation": null,
    "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})");
}

TEST(HfConfig, ReadsGpt2) {
  const HfConfig c = parse(gpt2());
  EXPECT_EQ(c.family, Family::gpt2);
  EXPECT_EQ(c.hidden, 768);
  EXPECT_EQ(c.intermediate, 3072);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.kv_heads, 12);
  EXPECT_EQ(c.max_positions, 1024);
  EXPECT_TRUE(c.tied);
  EXPECT_TRUE(c.learned_positions);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_EQ(c.attention_dropout, 0.1);
  EXPECT_EQ(c.embedding_dropout, 0.2);
  EXPECT_EQ(c.residual_dropout, 0.3);
  Json json = gpt2();
  json.erase("attn_pdrop");
  EXPECT_EQ(parse(json).attention_dropout, 0.1);  // the family's default
  json.erase("architectures");
  EXPECT_EQ(parse(json).architecture, "GPT2LMHeadModel");
  json["n_inner"] = 100;
  EXPECT_EQ(parse(json).intermediate, 100);
}

TEST(HfConfig, RefusesGpt2sThatComputeOtherNumbers) {
  refuses("activation_function", gpt2(), "activation_function", "relu");
  refuses("scale_attn_by_inverse_layer_idx", gpt2(), "scale_attn_by_inverse_layer_idx", true);
  refuses("scale_attn_weights", gpt2(), "scale_attn_weights", false);
  refuses("tie_word_embeddings", gpt2(), "tie_word_embeddings", false);
  refuses("attn_pdrop", gpt2(), "attn_pdrop", 1.0);
  refuses("embd_pdrop", gpt2(), "embd_pdrop", -0.1);
  refuses("multiple", gpt2(), "n_head", 7);
  refuses("not known", gpt2(), "hidden_size", 768);
  refuses("not known", v4(), "n_embd", 768);
}

TEST(HfConfig, RefusesWhatWouldChangeNumbers) {
  refuses("quantised source", v4(), "quantization_config", {{"bits", 4}});
  refuses("sliding_window is 4096", v4(), "sliding_window", 4096);
  refuses("gelu", v4(), "hidden_act", "gelu");
  refuses("attention_dropout", v4(), "attention_dropout", 0.1);
  refuses("pretraining_tp", v4(), "pretraining_tp", 2);
  refuses("rope_interleaved", v4(), "rope_interleaved", true);
  refuses("sliding_attention", v4(), "layer_types", {"full_attention", "sliding_attention"});
  refuses("not known", v4(), "logit_scale", 0.5);
  refuses("not known", v4(), "max_length min_length", 1);
  refuses("not known", v4(), "", 1);
  refuses("not known", v4(), "auto_map", {{"AutoModel", "x.Y"}});
  refuses("disagree", v4(), "dtype", "float32");
  Json mistral = v4();
  mistral["architectures"] = {"MistralForCausalLM"};
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(parse(mistral).architecture, "MistralForCausalLM");
  refuses("no such choice", mistral, "attention_bias", true);
}

TEST(HfConfig, RefusesImpossibleSizes) {
  refuses("hidden_size", v4(), "hidden_size", 0);
  refuses("hidden_size", v4(), "hidden_size", "64");
  refuses("hidden_size", v4(), "hidden_size", 64.5);
  refuses("hidden_size", v4(), "hidden_size", nullptr);
  refuses("multiple", v4(), "num_key_value_heads", 3);
  refuses("multiple", v4(), "num_attention_heads", 6);
  refuses("odd", v4(), "head_dim", 17);
  refuses("num_hidden_layers", v4(), "num_hidden_layers", 1 << 20);
  refuses("vocab_size", v4(), "vocab_size", -5);
  refuses("rms_norm_eps", v4(), "rms_norm_eps", 0);
  refuses("true or false", v4(), "tie_word_embeddings", "yes");
}

TEST(HfConfig, ReadsFoldersAndSaysWhatIsWrongWithThem) {
  TempDir dir;
  expect_error(ErrorKind::model, "does not exist", [&] { read_hf_config(dir / "none"); });
  expect_error(ErrorKind::model, "no config.json", [&] { read_hf_config(dir.path()); });
  write_file(dir / "config.json", "{\"a\":");
  expect_error(ErrorKind::model, "not valid JSON", [&] { read_hf_config(dir.path()); });
  write_file(dir / "config.json", "[]");
  expect_error(ErrorKind::model, "JSON object", [&] { read_hf_config(dir.path()); });
  write_file(dir / "config.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n");
  expect_error(ErrorKind::model, "git lfs pull", [&] { read_hf_config(dir.path()); });
  write_file(dir / "config.json", v4().dump());
  EXPECT_EQ(read_hf_config(dir.path()).vocab, 100);
}

TEST(HfConfig, ReadsTheTestModels) {
  EXPECT_EQ(read_hf_config(test_models() / "llama3" / "model").rope_scaling.type, RopeScaling::Type::llama3);
  EXPECT_TRUE(read_hf_config(test_models() / "biased" / "model").mlp_bias);
  EXPECT_TRUE(read_hf_config(test_models() / "untied" / "model").pad_token.has_value());
  EXPECT_EQ(read_hf_config(test_models() / "mistral" / "model").architecture, "MistralForCausalLM");
  EXPECT_EQ(read_hf_config(test_models() / "gpt2" / "model").prefix, "transformer.");
  EXPECT_EQ(read_hf_config(test_models() / "gpt2_hub" / "model").prefix, "");
  EXPECT_EQ(read_hf_config(test_models() / "gpt2_hub" / "model").attention_dropout, 0.1);
}

}  // namespace
}  // namespace sluice::engine
