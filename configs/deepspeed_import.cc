#include "configs/deepspeed_import.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "configs/deepspeed_keys.h"
#include "configs/keys.h"

namespace sluice::configs {
namespace {

using base::ErrorKind;

// Sections of our own config that have DeepSpeed's names.
bool is_shared(const std::string& path) {
  constexpr std::string_view kShared[] = {"train_batch_size",
                                          "train_micro_batch_size_per_gpu",
                                          "gradient_accumulation_steps",
                                          "optimizer",
                                          "scheduler",
                                          "bf16",
                                          "fp16",
                                          "gradient_clipping",
                                          "communication_data_type",
                                          "zero_optimization",
                                          "aio"};
  const std::string_view first = std::string_view(path).substr(0, path.find('.'));
  return std::find(std::begin(kShared), std::end(kShared), first) != std::end(kShared);
}

// "2e8", 200000000.0 and "true" as what they mean.
Json tightened(Json value) {
  if (value.is_array())
    for (Json& item : value) item = tightened(std::move(item));
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text == "true" || text == "false") return text == "true";
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) value = number;
  }
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number >= 0 && number < 9007199254740992.0 && number == std::floor(number))
      return static_cast<uint64_t>(number);
  }
  return value;
}

bool is_off(const Json& value) {
  if (value.is_object()) {
    const auto enabled = value.find("enabled");
    return value.empty() || (enabled != value.end() && tightened(*enabled) == false);
  }
  return value.is_null() || value == "none" || tightened(value) == false;
}

class Import {
 public:
  Import(const OriginOf& origin_of, Layer* layer, std::vector<std::string>* notes)
      : origin_of_(origin_of), layer_(layer), notes_(notes) {}

  void visit(const std::string& path, const Json& value) {
    if (value == "auto" || rename(path, value)) return;
    const Key* key = is_shared(path) ? find_key(path) : nullptr;
    if (key) return set(*key, path, value);
    if (const DeepspeedKey* known = find_deepspeed_key(path)) return report(*known, path, value);
    if (!is_shared(path) || !is_section(path)) {
      if (const char* reason = not_built_yet(path))
        base::fail(ErrorKind::config, "{}: {} = {}: {}", origin_of_(path).text, path, show(value), reason);
      fail_unknown(path, origin_of_(path));
    }
    if (value.is_null()) return;
    if (!value.is_object())
      base::fail(ErrorKind::config, "{}: {} = {}: a section of keys in braces is needed",
                 origin_of_(path).text, path, show(value));
    flatten(path, Json::object(), origin_of_, layer_);
    for (const auto& [name, item] : value.items()) visit(path + "." + name, item);
  }

 private:
  // Old and short names. True: done.
  bool rename(const std::string& path, const Json& value) {
    const Origin origin = origin_of_(path);
    const OriginOf same = [&](const std::string&) { return origin; };
    if (path == "bfloat16") {
      visit("bf16", value);
    } else if (path == "zero_optimization" && value.is_boolean()) {
      flatten("zero_optimization.stage", value.get<bool>() ? 1 : 0, same, layer_);
    } else if (path == "zero_optimization.cpu_offload" && !value.is_object()) {
      if (!is_off(value)) flatten("zero_optimization.offload_optimizer.device", "cpu", same, layer_);
    } else if (path == "zero_optimization.cpu_offload_param" ||
               path == "zero_optimization.cpu_offload_params") {
      if (!is_off(value)) flatten("zero_optimization.offload_param.device", "cpu", same, layer_);
    } else {
      return false;
    }
    return true;
  }

  void set(const Key& key, const std::string& path, Json value) {
    RunConfig scratch;
    if (path == "optimizer.type" && value.is_string()) {
      std::string lower = value.get<std::string>();
      for (char& c : lower)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
      if (lower == "adam") value = "Adam";
      if (lower == "adamw") value = "AdamW";
      if (lower == "lion") value = "Lion";
    }
    if (!value.is_null() && !key.read(scratch, value)) value = tightened(std::move(value));
    if (!value.is_null()) flatten(path, value, origin_of_, layer_);
  }

  void report(const DeepspeedKey& known, const std::string& path, const Json& value) {
    const bool harmless =
        known.rule == DeepspeedRule::no_effect ||
        (known.rule == DeepspeedRule::must_be_off && is_off(value)) ||
        (known.rule == DeepspeedRule::must_be && tightened(value) == Json::parse(known.value));
    if (!harmless)
      base::fail(ErrorKind::config, "{}: {} = {}: {}{}", origin_of_(path).text, path, show(value),
                 known.reason,
                 known.rule == DeepspeedRule::must_be ? fmt::format("; allowed: {}", known.value) : "");
    if (known.rule == DeepspeedRule::no_effect)
      notes_->push_back(fmt::format("{}: {} has no effect: {}", origin_of_(path).text, path, known.reason));
  }

  const OriginOf& origin_of_;
  Layer* const layer_;
  std::vector<std::string>* const notes_;
};

}  // namespace

void import_deepspeed(const Json& document, const OriginOf& origin_of, Layer* layer,
                      std::vector<std::string>* notes) {
  Import import(origin_of, layer, notes);
  for (const auto& [name, item] : document.items()) import.visit(name, item);
}

}  // namespace sluice::configs
