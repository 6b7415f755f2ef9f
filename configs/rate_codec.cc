#include "configs/rate_codec.h"

#include <charconv>
#include <utility>

namespace sluice::configs {
namespace {

constexpr std::pair<char, double> kPrefixes[] = {
    {'P', 1e15}, {'T', 1e12}, {'G', 1e9}, {'M', 1e6}, {'k', 1e3}};

bool is_rate(double value) {
  return std::isfinite(value) && value > 0;
}

}  // namespace

std::optional<double> parse_rate(std::string_view text, std::string_view unit) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return {};
  std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  if (!rest.ends_with(unit)) return {};
  rest.remove_suffix(unit.size());
  if (rest.size() > 1) return {};
  for (const auto& [prefix, factor] : kPrefixes)
    if (!rest.empty() && rest[0] == prefix)
      return is_rate(value) ? std::optional(value * factor) : std::nullopt;
  return rest.empty() && is_rate(value) ? std::optional(value) : std::nullopt;
}

std::string format_rate(double rate, std::string_view unit) {
  for (const auto& [prefix, factor] : kPrefixes)
    if (rate >= factor) return fmt::format("{:.6g}{}{}", rate / factor, prefix, unit);
  return fmt::format("{:.6g}{}", rate, unit);
}

Codec<double> rate(const std::string& unit) {
  const char prefix = unit == "FLOP/s" ? 'T' : 'G';
  return {fmt::format("a rate above 0 such as \"12{}{}\"", prefix, unit),
          [unit](const Json& value) -> std::optional<double> {
            if (value.is_number())
              return is_rate(value.get<double>()) ? std::optional(value.get<double>()) : std::nullopt;
            if (!value.is_string()) return {};
            return parse_rate(value.get_ref<const std::string&>(), unit);
          },
          [unit](const double& value) { return value > 0 ? Json(format_rate(value, unit)) : Json(nullptr); },
          true};
}

Codec<std::vector<double>> rates(const std::string& unit) {
  const Codec<double> one = rate(unit);
  return {"a list of rates such as [\"3GB/s\", \"1.5GB/s\"]",
          [read = one.read](const Json& value) -> std::optional<std::vector<double>> {
            if (!value.is_array() || value.empty()) return {};
            std::vector<double> list;
            for (const Json& item : value) {
              const std::optional<double> rate = read(item);
              if (!rate) return {};
              list.push_back(*rate);
            }
            return list;
          },
          [write = one.write](const std::vector<double>& value) {
            Json list = Json::array();
            for (const double rate : value) list.push_back(write(rate));
            return list;
          }};
}

}  // namespace sluice::configs
