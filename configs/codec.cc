#include "configs/codec.h"

#include "base/error.h"
#include "base/units.h"
#include "configs/run_config.h"

namespace sluice::configs {
namespace {

std::optional<std::string> read_text(const Json& value) {
  if (!value.is_string()) return {};
  const auto& text = value.get_ref<const std::string&>();
  if (text.empty() || text.find('\0') != std::string::npos) return {};
  return text;
}

// Exact and short: "700MiB", or a plain count when it is no multiple of 1 KiB.
Json write_bytes(const uint64_t& value) {
  constexpr std::pair<uint64_t, const char*> kUnits[] = {
      {1ull << 30, "GiB"}, {1ull << 20, "MiB"}, {1ull << 10, "KiB"}};
  for (const auto& [unit, name] : kUnits)
    if (value > 0 && value % unit == 0) return fmt::format("{}{}", value / unit, name);
  return value;
}

// A list whose items all pass `read`; a single item may stand without brackets.
template <class T, class Read>
std::optional<std::vector<T>> read_list(const Json& value, const Read& read) {
  std::vector<T> list;
  const auto add = [&](const Json& item) {
    auto one = read(item);
    if (one) list.push_back(T(std::move(*one)));
    return one.has_value();
  };
  if (!value.is_array()) return add(value) ? std::optional(list) : std::nullopt;
  for (const Json& item : value)
    if (!add(item)) return {};
  return list;
}

}  // namespace

std::string Interval::describe() const {
  const std::string from = low_open ? fmt::format("above {}", low) : fmt::format("from {}", low);
  if (std::isinf(high)) return "a number " + from;
  return fmt::format("a number {} {} {}", from, high_open ? "and below" : "to", high);
}

Codec<double> number(const Interval& interval) {
  return {interval.describe(),
          [=](const Json& value) -> std::optional<double> {
            if (!value.is_number() || !interval.contains(value.get<double>())) return {};
            return value.get<double>();
          },
          [](const double& value) { return Json(value); }};
}

Codec<bool> flag() {
  return {
      "true or false",
      [](const Json& value) { return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt; },
      [](const bool& value) { return Json(value); }};
}

Codec<std::string> text() {
  return {"a text", read_text, [](const std::string& value) { return Json(value); }, true};
}

Codec<std::filesystem::path> path() {
  return {
      "a path",
      [](const Json& value) -> std::optional<std::filesystem::path> {
        if (auto text = read_text(value)) return *text;
        return {};
      },
      [](const std::filesystem::path& value) { return value.empty() ? Json(nullptr) : Json(value.string()); },
      true};
}

Codec<std::vector<std::filesystem::path>> paths() {
  return {"a list of paths",
          [](const Json& value) { return read_list<std::filesystem::path>(value, read_text); },
          [](const std::vector<std::filesystem::path>& value) {
            Json list = Json::array();
            for (const auto& item : value) list.push_back(item.string());
            return list;
          }};
}

Codec<std::vector<std::string>> globs() {
  return {"a list of patterns such as \"model.layers.*\"",
          [](const Json& value) { return read_list<std::string>(value, read_text); },
          [](const std::vector<std::string>& value) { return Json(value); }};
}

Codec<std::vector<double>> two_numbers(const Interval& interval) {
  return {"a list of two numbers, each " + interval.describe().substr(9),
          [=](const Json& value) -> std::optional<std::vector<double>> {
            auto list = value.is_array() ? read_list<double>(value, number(interval).read) : std::nullopt;
            return list && list->size() == 2 ? list : std::nullopt;
          },
          [](const std::vector<double>& value) { return Json(value); }};
}

Codec<uint64_t> bytes(uint64_t low) {
  return {fmt::format("a number of bytes such as \"8GiB\" or \"500MB\", from {}", base::format_bytes(low)),
          [=](const Json& value) -> std::optional<uint64_t> {
            const auto checked = [&](uint64_t count) {
              return count < low ? std::nullopt : std::optional(count);
            };
            if (value.is_number_unsigned()) return checked(value.get<uint64_t>());
            if (!value.is_string()) return {};
            try {
              return checked(base::parse_bytes(value.get_ref<const std::string&>()));
            } catch (const base::Error&) {
              return {};
            }
          },
          write_bytes};
}

Codec<Json> model_sizes() {
  return {"a known model's name such as \"Llama-3.1-8B\", or its sizes by config.json's keys, in braces",
          [](const Json& value) -> std::optional<Json> {
            if (!read_text(value) && !value.is_object()) return {};
            return value;
          },
          [](const Json& value) { return value; }, true};
}

Codec<uint32_t> layers() {
  return {"a number of layers, or \"all\"",
          [count = integer<uint32_t>(0, kAllLayers - 1)](const Json& value) -> std::optional<uint32_t> {
            if (value == "all") return kAllLayers;
            return count.read(value);
          },
          [](const uint32_t& value) { return value == kAllLayers ? Json("all") : Json(value); }, true};
}

}  // namespace sluice::configs
