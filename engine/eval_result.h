// What an evaluation finds.
#pragma once
#include <cmath>
#include <cstdint>

namespace sluice::engine {

struct EvalResult {
  double loss = 0;      // nats per trained token
  uint64_t tokens = 0;  // trained
  double perplexity() const { return std::exp(loss); }
};

}  // namespace sluice::engine
