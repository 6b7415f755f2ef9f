#include "base/rounds.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "base/statistics.h"

namespace sluice::base {

double process_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double monotonic_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double Rounds::median() const { return base::median(rates); }

double Rounds::spread() const {
  if (rates.empty() || median() <= 0) return 0;
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  return (*most - *least) / median();
}

Rounds measure_rounds(int count, double seconds, const std::function<double(double)>& round) {
  round(seconds / 4);
  Rounds rounds;
  double units = 0;
  const double cpu = process_cpu_seconds();
  for (int i = 0; i < count; ++i) {
    const double begin = monotonic_seconds(), done = round(seconds);
    rounds.rates.push_back(done / (monotonic_seconds() - begin));
    units += done;
  }
  if (units > 0) rounds.cpu_per_unit = (process_cpu_seconds() - cpu) / units;
  return rounds;
}

double repeat_for(double seconds, const std::function<void()>& call) {
  const double begin = monotonic_seconds();
  double calls = 0;
  do call(), ++calls;
  while (monotonic_seconds() - begin < seconds);
  return calls;
}

}  // namespace sluice::base
