// Rates as people write them: "6.5GB/s", "150TFLOP/s", "2.2Gparam/s", or a plain number of units per second.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/codec.h"

namespace sluice::configs {

// Decimal prefixes k, M, G, T, P. No value: not a rate above 0 in this unit ("B/s", "FLOP/s", "param/s").
std::optional<double> parse_rate(std::string_view text, std::string_view unit);
// Six digits.
std::string format_rate(double rate, std::string_view unit);

Codec<double> rate(const std::string& unit);  // 0, which stands for unknown, is written as null
Codec<std::vector<double>> rates(const std::string& unit);

}  // namespace sluice::configs
