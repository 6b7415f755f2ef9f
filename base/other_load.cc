#include "base/other_load.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "base/rounds.h"

namespace sluice::base {
namespace {

std::string read_stat() {
  std::ifstream in("/proc/stat");
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

// "cpu3 user nice system idle iowait irq softirq steal guest guest_nice"; guests are part of user and nice.
ProcessorTicks processor_ticks(std::string_view stat, const std::vector<unsigned>& cpus) {
  ProcessorTicks ticks;
  std::istringstream lines{std::string(stat)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string name;
    fields >> name;
    const bool wanted = std::ranges::any_of(cpus, [&](unsigned cpu) { return name == "cpu" + std::to_string(cpu); });
    for (int i = 0; wanted && i < 8; ++i) {
      double value = 0;
      fields >> value;
      ticks.all += value;
      if (i != 3 && i != 4) ticks.busy += value;
    }
  }
  return ticks;
}

OtherLoad::OtherLoad(std::vector<unsigned> cpus)
    : cpus_(std::move(cpus)), ticks_(processor_ticks(read_stat(), cpus_)), own_(process_cpu_seconds()) {}

double OtherLoad::share() const {
  const ProcessorTicks now = processor_ticks(read_stat(), cpus_);
  const double all = now.all - ticks_.all, own = (process_cpu_seconds() - own_) * static_cast<double>(sysconf(_SC_CLK_TCK));
  return all > 0 ? std::clamp((now.busy - ticks_.busy - own) / all, 0.0, 1.0) : 0;
}

}  // namespace sluice::base
