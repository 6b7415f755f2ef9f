#include "apps/amounts.h"

#include <fmt/format.h>

namespace sluice::apps {

std::string decimal_bytes(double bytes) {
  if (bytes >= 1e12) return fmt::format("{:.2f} TB", bytes / 1e12);
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.1f} MB", bytes / 1e6);
  return bytes >= 1e3 ? fmt::format("{:.1f} kB", bytes / 1e3) : fmt::format("{:.0f} B", bytes);
}

std::string parameter_count(double parameters) {
  if (parameters >= 1e12) return fmt::format("{:.3g} T", parameters / 1e12);
  return parameters >= 1e9 ? fmt::format("{:.3g} B", parameters / 1e9) : fmt::format("{:.3g} M", parameters / 1e6);
}

}  // namespace sluice::apps
