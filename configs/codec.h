// How one kind of value is read from JSON, written back, and described to people.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/json_text.h"

namespace sluice::configs {

template <class T>
struct Codec {
  std::string allowed;                                // "an integer from 1", "none, cpu or nvme"
  std::function<std::optional<T>(const Json&)> read;  // no value: not allowed
  std::function<Json(const T&)> write;                // null: nothing to write
  bool text = false;                                  // a bare word on the command line is the value itself
};

template <class T = uint64_t>
Codec<T> integer(uint64_t low, uint64_t high = std::numeric_limits<T>::max()) {
  const bool open = high == std::numeric_limits<T>::max();
  return {open ? fmt::format("an integer from {}", low) : fmt::format("an integer from {} to {}", low, high),
          [=](const Json& value) -> std::optional<T> {
            if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0))
              return {};
            const auto number = value.get<uint64_t>();
            if (number < low || number > high) return {};
            return static_cast<T>(number);
          },
          [](const T& value) { return Json(value); }};
}

struct Interval {
  double low, high;  // high may be infinite
  bool low_open = false, high_open = false;
  bool contains(double x) const {
    return std::isfinite(x) && (low_open ? x > low : x >= low) && (high_open ? x < high : x <= high);
  }
  std::string describe() const;
};

Codec<double> number(const Interval& interval);
Codec<bool> flag();
Codec<std::string> text();
Codec<std::filesystem::path> path();
Codec<std::vector<std::filesystem::path>> paths();
Codec<std::vector<std::string>> globs();
Codec<std::vector<double>> two_numbers(const Interval& interval);
Codec<uint64_t> bytes(uint64_t low = 0);
Codec<Json> model_sizes();  // a known model's name, or an object
Codec<uint32_t> layers();  // a count, or "all" for kAllLayers

// One of a few words.
template <class E>
Codec<E> choice(std::vector<std::pair<std::string, E>> words) {
  std::string allowed;
  for (size_t i = 0; i < words.size(); ++i)
    allowed += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + ('"' + words[i].first + '"');
  return {allowed,
          [words](const Json& value) -> std::optional<E> {
            if (!value.is_string()) return {};
            for (const auto& [word, item] : words)
              if (value.get_ref<const std::string&>() == word) return item;
            return {};
          },
          [words](const E& item) -> Json {
            for (const auto& [word, other] : words)
              if (other == item) return word;
            return nullptr;
          },
          true};
}

// No value when the key is absent.
template <class T>
Codec<std::optional<T>> maybe(Codec<T> inner) {
  return {inner.allowed,
          [inner](const Json& value) -> std::optional<std::optional<T>> {
            auto read = inner.read(value);
            if (!read) return {};
            return std::optional<std::optional<T>>(std::in_place, std::move(read));
          },
          [inner](const std::optional<T>& value) { return value ? inner.write(*value) : Json(nullptr); },
          inner.text};
}

// No value is written "auto".
template <class T>
Codec<std::optional<T>> or_auto(Codec<T> inner) {
  Codec<std::optional<T>> codec = maybe(inner);
  codec.allowed += ", or \"auto\"";
  codec.read = [inner, read = codec.read](const Json& value) -> std::optional<std::optional<T>> {
    if (value == "auto") return std::optional<std::optional<T>>(std::in_place, std::nullopt);
    return read(value);
  };
  codec.write = [inner](const std::optional<T>& value) { return value ? inner.write(*value) : Json("auto"); };
  return codec;
}

}  // namespace sluice::configs
