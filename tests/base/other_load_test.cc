#include "base/other_load.h"

#include <gtest/gtest.h>

#include "base/rounds.h"
#include "base/topology.h"

namespace sluice::base {
namespace {

TEST(OtherLoad, CountsTheGivenProcessorsOnly) {
  const char* stat =
      "cpu  9 9 9 9 9 9 9 9 9 9\n"
      "cpu0 1 2 3 100 10 4 5 6 0 0\n"
      "cpu1 10 0 0 10 0 0 0 0 10 0\n"
      "cpu10 1000 0 0 0 0 0 0 0 0 0\n"
      "intr 5\n";
  const ProcessorTicks both = processor_ticks(stat, {0, 1});
  EXPECT_EQ(both.busy, 21 + 10);
  EXPECT_EQ(both.all, 131 + 20);
  EXPECT_EQ(processor_ticks(stat, {7}).all, 0);
  EXPECT_EQ(processor_ticks("", {0}).all, 0);
}

// Whatever else runs: what this process does itself does not count.
TEST(OtherLoad, OwnWorkIsNotOthers) {
  const OtherLoad load(detect_topology().cpus);
  const double begin = monotonic_seconds(), own = process_cpu_seconds();
  while (monotonic_seconds() - begin < 0.2) {
  }
  const auto cpus = static_cast<double>(detect_topology().cpus.size());
  EXPECT_LE(load.share(), 1 - (process_cpu_seconds() - own) / (monotonic_seconds() - begin) / cpus + 0.15);
}

}  // namespace
}  // namespace sluice::base
