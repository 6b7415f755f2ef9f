// Rounds of a measurement: warm-up, median, spread, processor time.
#pragma once
#include <functional>
#include <vector>

namespace sluice::base {

// Seconds of processor time that all threads of this process have used, in the kernel too.
double process_cpu_seconds();
double monotonic_seconds();

struct Rounds {
  std::vector<double> rates;  // of each round: units of work per second
  double cpu_per_unit = 0;    // seconds of processor time for a unit, over all rounds
  double median() const;
  double spread() const;      // (largest - smallest) / median
};

// `round(seconds)` works for about so long and returns how many units it did. Once to warm up, then `count` times.
Rounds measure_rounds(int count, double seconds, const std::function<double(double seconds)>& round);

// For work that comes in calls: repeats it for about so long. Returns the number of calls.
double repeat_for(double seconds, const std::function<void()>& call);

}  // namespace sluice::base
