#include "engine/hf_reader.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>

#include "base/bf16.h"
#include "base/fp16.h"
#include "base/hash.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;
using base::fail;
using Json = nlohmann::ordered_json;

constexpr uint64_t kPieceBytes = 64 << 10;
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kHead = "lm_head.weight";

// The first names of a list that may be long.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  const std::vector<std::string> some(names.begin(),
                                      names.begin() + static_cast<long>(std::min(names.size(), kShown)));
  return fmt::format("{}{}", fmt::join(some, ", "),
                     names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "");
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// {tensor name: file name} of an index, file names plain.
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index) {
  const Json json = Json::parse(read_text_file(index, ErrorKind::model), nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("weight_map") ||
      !json["weight_map"].is_object())
    fail(ErrorKind::model, "{} is not an index: it must be JSON with an object weight_map", index.string());
  std::map<std::string, std::string> map;
  for (const auto& [name, value] : json["weight_map"].items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : "";
    if (file.empty() || file.find('/') != std::string::npos || file.find('\0') != std::string::npos ||
        file == "..")
      fail(ErrorKind::model, "{}: weight_map gives {} for {}; it must be the name of a file in that folder",
           index.string(), value.dump(), name);
    map[name] = file;
  }
  return map;
}

}  // namespace

bool is_ignored_buffer(const std::string& name, Family family) {
  if (family == Family::gpt2) return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
  return name.ends_with(".rotary_emb.inv_freq");
}

std::vector<ExpectedTensor> expected_tensors(const offload::ModelDesc& model) {
  std::vector<ExpectedTensor> expected;
  for (const offload::BlockDesc& block : model.blocks)
    for (const offload::TensorDesc& t : block.tensors) expected.push_back({t.name, t.shape});
  return expected;
}

HfReader::HfReader(const std::filesystem::path& folder) : folder_(folder), config_(read_hf_config(folder)) {
  if (std::filesystem::exists(folder / kSingle)) {
    add_file(kSingle);
  } else if (std::filesystem::exists(folder / kIndex)) {
    open_sharded(folder / kIndex);
  } else if (std::filesystem::is_symlink(folder / kSingle) || std::filesystem::is_symlink(folder / kIndex)) {
    fail(ErrorKind::model, "{}: the weights are a link to a file that is gone; download the model again",
         folder.string());
  } else {
    fail(ErrorKind::model,
         "{} has neither {} nor {}; other weight formats must be converted to safetensors first",
         folder.string(), kSingle, kIndex);
  }
}

void HfReader::open_sharded(const std::filesystem::path& index) {
  const std::map<std::string, std::string> map = read_weight_map(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : map) names.insert(file);
  for (const std::string& name : names) add_file(name);
  for (const auto& [tensor, file] : map)
    if (!has(tensor) || files_[place(tensor).file].name != file)
      fail(ErrorKind::model, "{} says that {} is in {}, but it is not", index.string(), tensor, file);
  for (const auto& [tensor, where] : places_)
    if (!map.contains(tensor))
      fail(ErrorKind::model, "{} holds {}, which {} does not know", files_[where.file].name, tensor,
           index.string());
}

void HfReader::add_file(const std::string& name) {
  WeightFile file{name, PlainFile::open(folder_ / name, ErrorKind::model), {}};
  file.header = read_safetensors_header(file.file);
  for (uint32_t i = 0; i < file.header.tensors.size(); ++i) {
    const Place here{static_cast<uint32_t>(files_.size()), i};
    if (const auto [it, added] = places_.emplace(file.header.tensors[i].name, here); !added)
      fail(ErrorKind::model, "{}: {} is in both {} and {}", folder_.string(), it->first,
           files_[it->second.file].name, name);
  }
  files_.push_back(std::move(file));
}

HfReader::Place HfReader::place(const std::string& name) const {
  const auto it = places_.find(name);
  if (it == places_.end()) fail(ErrorKind::model, "{} has no tensor {}", folder_.string(), name);
  return it->second;
}

const TensorEntry& HfReader::tensor(const std::string& name) const {
  const Place p = place(name);
  return files_[p.file].header.tensors[p.tensor];
}

void HfReader::check(const std::vector<ExpectedTensor>& expected) const {
  std::vector<std::string> missing, unknown, wrong;
  std::set<std::string> known;
  for (const ExpectedTensor& e : expected) {
    known.insert(e.name);
    if (!has(e.name)) {
      missing.push_back(e.name);
      continue;
    }
    const TensorEntry& t = tensor(e.name);
    if (t.shape != e.shape)
      wrong.push_back(fmt::format("{} is {}, needs {}", e.name, shape_text(t.shape), shape_text(e.shape)));
    if (t.dtype != "BF16" && t.dtype != "F16" && t.dtype != "F32")
      wrong.push_back(fmt::format("{} is {}, needs BF16, F16 or F32", e.name, t.dtype));
  }
  const bool spare_head = config_.tied && has(kHead) && !known.contains(kHead);
  for (const auto& [name, where] : places_)
    if (!known.contains(name) && !is_ignored_buffer(name, config_.family) && !(spare_head && name == kHead))
      unknown.push_back(name);

  if (!missing.empty())
    fail(ErrorKind::model, "{} lacks {} tensor(s) that its config.json calls for: {}{}", folder_.string(),
         missing.size(), listed(missing),
         missing == std::vector<std::string>{kHead}
             ? "; set tie_word_embeddings to true if the head is the embedding"
             : "");
  if (!unknown.empty())
    fail(ErrorKind::model, "{} has {} tensor(s) that a {} with this config.json does not have: {}",
         folder_.string(), unknown.size(), config_.architecture, listed(unknown));
  if (!wrong.empty()) fail(ErrorKind::model, "{}: {}", folder_.string(), listed(wrong));
  if (spare_head) check_tied_head(expected.front().name);
}

void HfReader::check_tied_head(const std::string& matrix) const {
  const TensorEntry &head = tensor(kHead), &embedding = tensor(matrix);
  bool equal = head.shape == embedding.shape && head.dtype == embedding.dtype;
  std::vector<char> a(1 << 20), b(a.size());
  for (uint64_t at = 0; equal && at < head.end - head.begin; at += a.size()) {
    const size_t bytes = std::min<uint64_t>(a.size(), head.end - head.begin - at);
    read_bytes(place(kHead), at, a.data(), bytes);
    read_bytes(place(matrix), at, b.data(), bytes);
    equal = std::memcmp(a.data(), b.data(), bytes) == 0;
  }
  if (!equal)
    spdlog::warn("{}: tie_word_embeddings is true, yet {} differs from {}; the embedding is used for both",
                 folder_.string(), kHead, matrix);
}

void HfReader::read_bytes(const Place& p, uint64_t offset, void* out, size_t bytes) const {
  const WeightFile& f = files_[p.file];
  f.file.read_at(f.header.data_start + f.header.tensors[p.tensor].begin + offset, out, bytes);
}

template <class Use>
void HfReader::each_piece(const std::string& name, uint64_t first, uint64_t count, const Use& use) const {
  const Place p = place(name);
  const TensorEntry& t = tensor(name);
  SLUICE_CHECK(first <= t.count() && count <= t.count() - first, name);
  const uint64_t width = dtype_bits(t.dtype) / 8;
  std::array<std::byte, kPieceBytes> piece;
  for (uint64_t done = 0; done < count;) {
    const uint64_t n = std::min(count - done, kPieceBytes / width);
    read_bytes(p, (first + done) * width, piece.data(), n * width);
    use(piece.data(), n, done);
    done += n;
  }
}

void HfReader::read(const std::string& name, uint64_t first, uint64_t count, float* out) const {
  const std::string& dtype = tensor(name).dtype;
  SLUICE_CHECK(dtype == "F32" || dtype == "BF16" || dtype == "F16", name);
  each_piece(name, first, count, [&](const std::byte* bytes, uint64_t n, uint64_t before) {
    if (dtype == "F32") {
      std::memcpy(out + before, bytes, n * 4);
      return;
    }
    const bool half = dtype == "F16";
    for (uint64_t i = 0; i < n; ++i) {
      uint16_t bits;
      std::memcpy(&bits, bytes + 2 * i, 2);
      out[before + i] = half ? base::fp16_to_float(bits) : base::bf16_to_float(bits);
    }
  });
}

void HfReader::read_bf16(const std::string& name, uint64_t first, uint64_t count, uint16_t* out) const {
  if (tensor(name).dtype == "BF16") {
    each_piece(name, first, count, [&](const std::byte* bytes, uint64_t n, uint64_t before) {
      std::memcpy(out + before, bytes, n * 2);
    });
    return;
  }
  std::array<float, 4096> values;
  for (uint64_t done = 0; done < count;) {
    const uint64_t n = std::min<uint64_t>(count - done, values.size());
    read(name, first + done, n, values.data());
    for (uint64_t i = 0; i < n; ++i) out[done + i] = base::split(values[i]).hi;
    done += n;
  }
}

std::string HfReader::digest() const {
  base::Xxh3 hash;
  const auto add = [&](const std::string& text) { hash.update(text.c_str(), text.size() + 1); };
  const HfConfig& c = config_;
  const RopeScaling& r = c.rope_scaling;
  add(fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", c.architecture, c.hidden,
                  c.intermediate, c.layers, c.heads, c.kv_heads, c.head_dim, c.vocab, c.norm_eps,
                  c.rope_theta, static_cast<int>(r.type), r.factor, r.low_freq_factor, r.high_freq_factor,
                  r.original_max_position, c.tied, c.attention_bias, c.mlp_bias, c.pad_token.value_or(-1),
                  places_.size()));
  if (c.family == Family::gpt2)
    add(fmt::format("{} {} {} {}", c.max_positions, c.embedding_dropout, c.attention_dropout, c.residual_dropout));
  std::vector<char> sample(kPieceBytes);
  for (const auto& [name, where] : places_) {
    const TensorEntry& t = tensor(name);
    add(fmt::format("{} {} {}", name, t.dtype, shape_text(t.shape)));
    const size_t bytes = std::min<uint64_t>(sample.size(), t.end - t.begin);
    read_bytes(where, 0, sample.data(), bytes);
    hash.update(sample.data(), bytes);
  }
  return base::hash_hex(hash.digest());
}

}  // namespace sluice::engine
