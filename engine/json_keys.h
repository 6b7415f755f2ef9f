// Typed access to the keys of a JSON object.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"

namespace sluice::engine {

// One object of a model's config.json, with its place in every message; errors are Error(model). null counts as missing.
class Keys {
 public:
  Keys(const nlohmann::ordered_json& json, std::string where) : json_(json), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }

  int64_t integer(const char* key, std::optional<int64_t> otherwise = {}) const {
    if (!has(key)) {
      if (otherwise) return *otherwise;
      base::fail(base::ErrorKind::model, "{}: the key {} is missing", where_, key);
    }
    const nlohmann::ordered_json& value = json_.at(key);
    const bool fits =
        value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
    if (!fits) wrong(key, "an integer");
    return value.get<int64_t>();
  }
  int64_t positive(const char* key, std::optional<int64_t> otherwise = {}) const {
    const int64_t value = integer(key, otherwise);
    if (value <= 0 || value > int64_t{1} << 31) wrong(key, "between 1 and 2^31");
    return value;
  }
  double number(const char* key, std::optional<double> otherwise = {}) const {
    if (!has(key)) {
      if (otherwise) return *otherwise;
      base::fail(base::ErrorKind::model, "{}: the key {} is missing", where_, key);
    }
    if (!json_.at(key).is_number()) wrong(key, "a number");
    return json_.at(key).get<double>();
  }
  double positive_number(const char* key, std::optional<double> otherwise = {}) const {
    const double value = number(key, otherwise);
    if (!(value > 0)) wrong(key, "above 0");
    return value;
  }
  bool boolean(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_boolean()) wrong(key, "true or false");
    return json_.at(key).get<bool>();
  }
  std::string text(const char* key) const {
    if (!has(key)) return "";
    if (!json_.at(key).is_string()) wrong(key, "a string");
    return json_.at(key).get<std::string>();
  }
  [[noreturn]] void wrong(const char* key, const char* wanted) const {
    base::fail(base::ErrorKind::model, "{}: {} is {}, it must be {}", where_, key, json_.at(key).dump(), wanted);
  }

 private:
  const nlohmann::ordered_json& json_;
  const std::string where_;
};

}  // namespace sluice::engine
