// Amounts for people, in decimal units, as drives, links and models have them.
#pragma once
#include <string>

namespace sluice::apps {

std::string decimal_bytes(double bytes);        // "6.50 GB", "1.0 MB"
std::string parameter_count(double parameters); // "1.7 T", "8.03 B", "135 M"

}  // namespace sluice::apps
