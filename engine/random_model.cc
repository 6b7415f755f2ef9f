#include "engine/random_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>
#include <vector>

#include "base/bf16.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"
#include "engine/model.h"
#include "engine/plain_file.h"
#include "engine/safetensors.h"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;

constexpr uint64_t kPiece = 1 << 22;  // elements made at a time
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
                                           "merges.txt",     "added_tokens.json",     "generation_config.json"};

// splitmix64: a bijection, so that neighbouring counters give independent values.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// Elements first, first + 1, ... (first even) of a tensor of normal values: Box and Muller, two values from one counter.
void normals(uint64_t stream, uint64_t first, float deviation, std::span<uint16_t> out) {
  for (size_t i = 0; i < out.size(); i += 2) {
    const uint64_t bits = mixed(stream + (first + i) / 2);
    const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f;  // (0, 1]
    const float angle = static_cast<float>(bits & 0xffffff) * (2 * std::numbers::pi_v<float> * 0x1p-24f);
    const float radius = deviation * std::sqrt(-2 * std::log(u));
    out[i] = base::split(radius * std::cos(angle)).hi;
    if (i + 1 < out.size()) out[i + 1] = base::split(radius * std::sin(angle)).hi;
  }
}

struct Shard {
  std::string name;
  SafetensorsHeader header;
};

std::vector<Shard> place(const offload::ModelDesc& model, uint64_t limit) {
  std::vector<Shard> shards;
  uint64_t at = 0;
  for (const auto& block : model.blocks)
    for (const auto& tensor : block.tensors) {
      const uint64_t bytes = tensor.count() * sizeof(uint16_t);
      if (shards.empty() || (at > 0 && at + bytes > limit)) {
        shards.emplace_back().header.metadata = {{"format", "pt"}};
        at = 0;
      }
      shards.back().header.tensors.push_back({tensor.name, "BF16", tensor.shape, at, at + bytes});
      at += bytes;
    }
  for (size_t i = 0; i < shards.size(); ++i)
    shards[i].name = shards.size() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  return shards;
}

// What the sizes leave out is written all the same: other readers have other defaults.
nlohmann::ordered_json llama_keys(const HfConfig& c) {
  return nlohmann::ordered_json{{"hidden_size", c.hidden},
                              {"intermediate_size", c.intermediate},
                              {"num_hidden_layers", c.layers},
                              {"num_attention_heads", c.heads},
                              {"num_key_value_heads", c.kv_heads},
                              {"head_dim", c.head_dim},
                              {"vocab_size", c.vocab},
                              {"max_position_embeddings", c.max_positions},
                              {"rms_norm_eps", c.norm_eps},
                              {"rope_theta", c.rope_theta},
                              {"tie_word_embeddings", c.tied},
                              {"hidden_act", "silu"}};
}

nlohmann::ordered_json gpt2_keys(const HfConfig& c) {
  return nlohmann::ordered_json{{"n_embd", c.hidden},
                              {"n_inner", c.intermediate},
                              {"n_layer", c.layers},
                              {"n_head", c.heads},
                              {"n_positions", c.max_positions},
                              {"vocab_size", c.vocab},
                              {"layer_norm_epsilon", c.norm_eps},
                              {"activation_function", "gelu_new"},
                              {"embd_pdrop", c.embedding_dropout},
                              {"attn_pdrop", c.attention_dropout},
                              {"resid_pdrop", c.residual_dropout}};
}

nlohmann::ordered_json config_text(const HfConfig& c) {
  nlohmann::ordered_json json{{"architectures", {c.architecture}}};
  json["model_type"] = name_of(c.family).type;
  json.update(c.family == Family::gpt2 ? gpt2_keys(c) : llama_keys(c));
  json["initializer_range"] = c.initializer_range;
  for (const auto& [key, value] : c.raw.items()) json[key] = value;
  json["dtype"] = json["torch_dtype"] = "bfloat16";
  return json;
}

class Writer {
 public:
  explicit Writer(const RandomModelOptions& options) : options_(options), shards_(place(describe_model(options.config), options.shard)) {
    for (const Shard& shard : shards_) total_ += shard.header.tensors.back().end;
  }

  void write() {
    if (fs::exists(options_.out) && !fs::is_empty(options_.out))
      base::fail(ErrorKind::config, "{} exists and is not empty; choose another folder", options_.out.string());
    const fs::path temporary = options_.out.string() + ".tmp";
    if (fs::exists(temporary))
      base::fail(ErrorKind::config, "{} is in the way, perhaps of an attempt that was killed; remove it", temporary.string());
    std::error_code error;
    fs::create_directories(temporary, error);
    if (error) base::fail(ErrorKind::disk, "cannot create {}: {}", temporary.string(), error.message());
    try {
      if (const uint64_t have = fs::space(temporary).available; have < total_ + (16 << 20))
        base::fail(ErrorKind::disk, "the model needs {} in {}, which has {} free", base::format_bytes(total_), options_.out.parent_path().string(),
                   base::format_bytes(have));
      write_texts(temporary);
      for (const Shard& shard : shards_) write_shard(temporary / shard.name, shard);
      fs::remove(options_.out);
      fs::rename(temporary, options_.out);
    } catch (...) {
      fs::remove_all(temporary, error);
      throw;
    }
  }

 private:
  void write_texts(const fs::path& folder) const {
    const auto text = [&](const std::string& name, const std::string& content) {
      PlainFile file = PlainFile::create(folder / name);
      file.append(content.data(), content.size());
      file.sync();
    };
    text("config.json", config_text(options_.config).dump(2) + "\n");
    if (shards_.size() > 1) {
      nlohmann::ordered_json index{{"metadata", {{"total_size", total_}}}, {"weight_map", nlohmann::ordered_json::object()}};
      for (const Shard& shard : shards_)
        for (const TensorEntry& tensor : shard.header.tensors) index["weight_map"][tensor.name] = shard.name;
      text("model.safetensors.index.json", index.dump(2) + "\n");
    }
    if (options_.tokenizer.empty()) return;
    for (const char* name : kTokenizerFiles)
      if (const fs::path from = options_.tokenizer / name; fs::exists(from)) text(name, read_text_file(from, ErrorKind::data));
  }

  void write_shard(const fs::path& path, const Shard& shard) {
    PlainFile file = PlainFile::create(path);
    const std::string header = write_safetensors_header(shard.header);
    file.append(header.data(), header.size());
    std::vector<uint16_t> piece(kPiece);
    for (const TensorEntry& tensor : shard.header.tensors)
      for (uint64_t first = 0; first < tensor.count(); first += kPiece) {
        const auto part = std::span(piece).first(std::min(kPiece, tensor.count() - first));
        make(tensor, first, part);
        file.append(part.data(), part.size_bytes());
        done_ += part.size_bytes();
        if (options_.progress) options_.progress(done_, total_);
      }
    file.sync();
  }

  void make(const TensorEntry& tensor, uint64_t first, std::span<uint16_t> out) const {
    if (tensor.shape.size() == 1) {  // norms and biases
      const bool bias = tensor.name.ends_with("bias");
      return std::fill(out.begin(), out.end(), base::split(bias ? 0.0f : 1.0f).hi);
    }
    const uint64_t stream = mixed(base::xxh3(tensor.name.data(), tensor.name.size()) ^ mixed(options_.seed));
    const size_t workers = static_cast<size_t>(std::max(1, options_.threads)), share = base::round_up(out.size() / workers + 1, 2);
    std::vector<std::jthread> threads;
    for (size_t begin = 0; begin < out.size(); begin += share)
      threads.emplace_back([&, begin] {
        normals(stream, first + begin, deviation(tensor.name),
                out.subspan(begin, std::min(share, out.size() - begin)));
      });
  }

  // GPT-2 begins with smaller matrices where a branch joins the residual stream, so that the sum of all branches keeps its size.
  float deviation(const std::string& name) const {
    const HfConfig& c = options_.config;
    const bool joins = c.family == Family::gpt2 && name.ends_with("c_proj.weight");
    return static_cast<float>(c.initializer_range / (joins ? std::sqrt(2.0 * static_cast<double>(c.layers)) : 1));
  }

  const RandomModelOptions& options_;
  const std::vector<Shard> shards_;
  uint64_t total_ = 0, done_ = 0;
};

}  // namespace

void write_random_model(const RandomModelOptions& options) {
  if (!name_of(options.config.family).trained)
    base::fail(ErrorKind::config, "{} can be planned, but not made or trained: its layers are not built", options.config.architecture);
  Writer(options).write();
}

}  // namespace sluice::engine
