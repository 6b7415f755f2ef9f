// Statistics of a few values.
#pragma once
#include <algorithm>
#include <vector>

namespace sluice::base {

// The middle value (of an even number the upper one); 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sluice::base
