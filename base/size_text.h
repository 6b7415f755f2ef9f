// Sizes for a config, which must be large enough.
#pragma once
#include <cstdint>
#include <string>

namespace sluice::base {

// Rounded up, as people write it: "900MiB", "17GiB".
std::string size_text(uint64_t bytes);

}  // namespace sluice::base
