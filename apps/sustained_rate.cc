#include "apps/sustained_rate.h"

#include <algorithm>

#include "base/statistics.h"

namespace sluice::apps {

double SustainedRate::rate() const {
  return base::median({windows.end() - static_cast<std::ptrdiff_t>(std::min(windows.size(), kFlat)), windows.end()});
}

void SustainedRate::add(double written, double seconds) {
  windows.push_back(written / seconds);
  const double fast = base::median({windows.begin(), windows.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(3, windows.size()))});
  if (!fast_bytes && windows.back() < 0.85 * fast) fast_bytes = bytes;
  bytes += written;
  if (windows.size() < 2 * kFlat) return;
  const auto [least, most] = std::minmax_element(windows.end() - kFlat, windows.end());
  flat = *most - *least <= 0.1 * rate();
}

}  // namespace sluice::apps
