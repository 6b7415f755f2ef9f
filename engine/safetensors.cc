#include "engine/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/units.h"

namespace sluice::engine {
namespace {

using base::ErrorKind;
using base::fail;

constexpr std::array<std::pair<std::string_view, uint32_t>, 22> kTypes{{
    {"F32", 32},        {"BF16", 16},   {"F16", 16},    {"F64", 64},    {"BOOL", 8},    {"U8", 8},
    {"I8", 8},          {"U16", 16},    {"I16", 16},    {"U32", 32},    {"I32", 32},    {"U64", 64},
    {"I64", 64},        {"C64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
}};
constexpr std::string_view kMetadata = "__metadata__";
constexpr uint64_t kMaxDimension = (uint64_t{1} << 48) - 1;

// A name as it may be shown in a message.
std::string shown(const std::string& name) {
  return nlohmann::json(name.substr(0, 200)).dump(-1, ' ', true);
}

// Receives the parser's events and builds the entries. A tree would keep one of two equal keys silently and
// would need far more memory than the entries themselves.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderHandler(SafetensorsHeader& header, const std::string& where) : header_(header), where_(where) {}

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a truth value"); }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const string_t& text) override { return refuse("the number " + text); }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::numbers) return refuse("a number");
    if (field_ == "shape") {
      if (value > kMaxDimension) return refuse("a dimension above 2^48 - 1");
      entry().shape.push_back(static_cast<int64_t>(value));
    } else {
      offsets_.push_back(value);
    }
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::metadata_value) {
      header_.metadata.emplace_back(field_, value);
      state_ = State::metadata;
      return true;
    }
    if (state_ != State::field || field_ != "dtype") return refuse("a string");
    if (dtype_bits(value) == 0) return refuse("the unknown type " + shown(value));
    entry().dtype = value;
    state_ = State::tensor;
    return true;
  }

  bool start_object(size_t) override {
    switch (state_) {
      case State::outside:
        state_ = State::root;
        return true;
      case State::root_value:
        if (name_ == kMetadata) {
          state_ = State::metadata;
        } else {
          state_ = State::tensor;
          header_.tensors.emplace_back().name = name_;
          offsets_.clear();
        }
        fields_.clear();
        return true;
      default:
        return refuse("an object");
    }
  }

  bool key(string_t& value) override {
    if (std::any_of(value.begin(), value.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }))
      fail(ErrorKind::model, "{}: the name {} holds a control character", where_, shown(value));
    if (state_ == State::root) {
      if (!names_.insert(value).second)
        fail(ErrorKind::model, "{}: the name {} occurs twice", where_, shown(value));
      name_ = value;
      state_ = State::root_value;
      return true;
    }
    if (!fields_.insert(value).second)
      fail(ErrorKind::model, "{}: {} has the key {} twice", where_, shown(name_), shown(value));
    field_ = value;
    if (state_ == State::metadata) {
      state_ = State::metadata_value;
      return true;
    }
    if (value != "dtype" && value != "shape" && value != "data_offsets")
      fail(ErrorKind::model, "{}: tensor {} has the unknown key {}", where_, shown(name_), shown(value));
    state_ = State::field;
    return true;
  }

  bool end_object() override {
    if (state_ == State::tensor) {
      if (fields_.size() != 3)
        fail(ErrorKind::model, "{}: tensor {} lacks dtype, shape or data_offsets", where_, shown(name_));
      entry().begin = offsets_[0];
      entry().end = offsets_[1];
    }
    state_ = state_ == State::root ? State::outside : State::root;
    return true;
  }

  bool start_array(size_t) override {
    if (state_ != State::field || field_ == "dtype") return refuse("a list");
    state_ = State::numbers;
    return true;
  }

  bool end_array() override {
    if (field_ == "data_offsets" && offsets_.size() != 2)
      fail(ErrorKind::model, "{}: tensor {} has {} data_offsets, not 2", where_, shown(name_),
           offsets_.size());
    state_ = State::tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    std::string what = e.what();  // "[json.exception...] parse error at line 1, column 5: syntax error ..."
    if (const size_t cut = what.find(": "); cut != std::string::npos) what.erase(0, cut + 2);
    fail(ErrorKind::model, "{}: the header is not valid JSON at byte {}: {}. Download the file again", where_, position, what);
  }

 private:
  enum class State { outside, root, root_value, tensor, field, numbers, metadata, metadata_value };

  TensorEntry& entry() { return header_.tensors.back(); }
  bool refuse(const std::string& what) {
    fail(ErrorKind::model, "{}: {} where the format does not allow it{}{}", where_, what,
         name_.empty() ? "" : ", at ",
         name_.empty() ? "" : shown(name_) + (field_.empty() ? "" : "." + field_));
  }

  SafetensorsHeader& header_;
  const std::string& where_;
  State state_ = State::outside;
  std::string name_, field_;
  std::unordered_set<std::string> names_, fields_;
  std::vector<uint64_t> offsets_;
};

// Bytes of a tensor from its type and shape. False when they overflow or end inside a byte.
bool tensor_bytes(const TensorEntry& tensor, uint64_t* bytes) {
  uint64_t bits = dtype_bits(tensor.dtype);
  for (const int64_t dimension : tensor.shape)
    if (__builtin_mul_overflow(bits, static_cast<uint64_t>(dimension), &bits)) return false;
  *bytes = bits / 8;
  return bits % 8 == 0;
}

void check_ranges(const SafetensorsHeader& header, uint64_t data_bytes, const std::string& where) {
  uint64_t at = 0;
  for (const TensorEntry& t : header.tensors) {
    uint64_t bytes = 0;
    if (!tensor_bytes(t, &bytes))
      fail(ErrorKind::model, "{}: the size of tensor {} is impossible", where, shown(t.name));
    if (t.end < t.begin || t.end - t.begin != bytes)
      fail(ErrorKind::model, "{}: tensor {} has the range [{}, {}) where its type and shape need {} bytes",
           where, shown(t.name), t.begin, t.end, bytes);
    if (t.begin != at)
      fail(ErrorKind::model, "{}: {} before tensor {}: it begins at {}, the one before it ends at {}", where,
           t.begin < at ? "overlap" : "hole", shown(t.name), t.begin, at);
    at = t.end;
  }
  if (at > data_bytes)
    fail(ErrorKind::model, "{} is cut short: its tensors need {} of data, the file has {}. Download it again",
         where, base::format_bytes(at), base::format_bytes(data_bytes));
  if (at < data_bytes) fail(ErrorKind::model, "{}: {} bytes follow the last tensor", where, data_bytes - at);
}

}  // namespace

uint64_t TensorEntry::count() const {
  uint64_t n = 1;
  for (const int64_t dimension : shape) n *= static_cast<uint64_t>(dimension);
  return n;
}

uint32_t dtype_bits(std::string_view dtype) {
  const auto* it =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& t) { return t.first == dtype; });
  return it == kTypes.end() ? 0 : it->second;
}

uint64_t safetensors_header_bytes(std::string_view first_bytes, uint64_t file_bytes,
                                  const std::string& where) {
  if (file_bytes < 8 || first_bytes.size() < 8)
    fail(ErrorKind::model, "{} has {} bytes; a safetensors file has at least 8", where, file_bytes);
  uint64_t bytes = 0;
  std::memcpy(&bytes, first_bytes.data(), 8);
  if (bytes > kMaxSafetensorsHeader)
    fail(ErrorKind::model, "{} is not a safetensors file: its header would have {} bytes, more than {}",
         where, bytes, kMaxSafetensorsHeader);
  if (bytes > file_bytes - 8)
    fail(ErrorKind::model, "{} is cut short: its header has {} bytes, the file {}. Download it again", where,
         bytes, file_bytes);
  return bytes;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t file_bytes,
                                           const std::string& where) {
  if (!json.starts_with('{')) fail(ErrorKind::model, "{}: the header does not begin with '{{'", where);
  // The parser takes a zero byte for the end and would skip what follows.
  if (json.find('\0') != std::string_view::npos)
    fail(ErrorKind::model, "{}: the header is not valid JSON: it holds a zero byte", where);
  SafetensorsHeader header;
  header.data_start = 8 + json.size();
  HeaderHandler handler(header, where);
  nlohmann::json::sax_parse(json, &handler);
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  check_ranges(header, file_bytes - header.data_start, where);
  return header;
}

SafetensorsHeader read_safetensors_header(const PlainFile& file) {
  const std::string where = file.path().string();
  std::string beginning(std::min<uint64_t>(file.size(), 64), '\0');
  file.read_at(0, beginning.data(), beginning.size());
  refuse_lfs_pointer(beginning, file.path());
  std::string json(safetensors_header_bytes(beginning, file.size(), where), '\0');
  file.read_at(8, json.data(), json.size());
  return parse_safetensors_header(json, file.size(), where);
}

std::string write_safetensors_header(const SafetensorsHeader& header) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [key, value] : header.metadata) json[std::string(kMetadata)][key] = value;
  for (const TensorEntry& t : header.tensors) {
    nlohmann::ordered_json& entry = json[t.name];
    entry["dtype"] = t.dtype;
    entry["shape"] = t.shape;
    entry["data_offsets"] = {t.begin, t.end};
  }
  std::string text = json.dump();
  text.resize(base::round_up(text.size(), 8), ' ');
  const uint64_t bytes = text.size();
  std::string length(8, '\0');
  std::memcpy(length.data(), &bytes, 8);
  return length + text;
}

}  // namespace sluice::engine
