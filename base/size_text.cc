#include "base/size_text.h"

#include <fmt/format.h>

#include "base/units.h"

namespace sluice::base {

std::string size_text(uint64_t bytes) {
  return bytes < 8_GiB ? fmt::format("{}MiB", ceil_div(bytes, 1_MiB)) : fmt::format("{}GiB", ceil_div(bytes, 1_GiB));
}

}  // namespace sluice::base
