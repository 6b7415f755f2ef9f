#include "base/units.h"

#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace sluice::base {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kUnits[] = {
    {"", 1},           {"b", 1},       {"k", 1024.0},         {"m", 1048576.0},  {"g", 1073741824.0}, {"t", 1099511627776.0},
    {"kib", 1024.0},   {"mib", 1048576.0}, {"gib", 1073741824.0}, {"tib", 1099511627776.0},
    {"kb", 1e3},       {"mb", 1e6},    {"gb", 1e9},           {"tb", 1e12},
};

}  // namespace

uint64_t parse_bytes(std::string_view text) {
  const auto bad = [&](const char* why) {
    fail(ErrorKind::config, "\"{}\" is not a byte count: {}. Write for example \"8GiB\", \"500MB\" or 1048576", text, why);
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || number < 0) bad("no number");
  std::string unit;
  for (const char* p = end; p != text.data() + text.size(); ++p)
    if (*p != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*p)));
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const double bytes = number * factor;
    if (bytes >= 9007199254740992.0) bad("too large");
    if (bytes != std::floor(bytes)) bad("a fraction of a byte");
    return static_cast<uint64_t>(bytes);
  }
  bad("unknown unit");
  return 0;
}

std::string format_bytes(uint64_t bytes) {
  constexpr const char* kNames[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  size_t i = 0;
  while (value >= 1024 && i + 1 < std::size(kNames)) value /= 1024, ++i;
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, kNames[i]);
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0)) return "?";
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<uint64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace sluice::base
