// IEEE half precision bits, for weights stored as F16. (_Float16 is not C++ in every compiler we build with.)
#pragma once
#include <cstdint>

namespace sluice::engine {

float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);  // to nearest even; overflow gives infinity, a NaN stays a NaN

}  // namespace sluice::engine
