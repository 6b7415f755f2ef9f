// How much of the processors something else uses while this process works.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

namespace sluice::base {

// From the text of /proc/stat: what these processors have done and could have done since the system started, in its ticks.
struct ProcessorTicks {
  double busy = 0;  // taken by other guests of the same hardware included
  double all = 0;
};
ProcessorTicks processor_ticks(std::string_view stat, const std::vector<unsigned>& cpus);

// Watches from its construction on. Not thread-safe.
class OtherLoad {
 public:
  // cpus: those that this process may use.
  explicit OtherLoad(std::vector<unsigned> cpus);
  // Share of these processors' time that went to others than this process; 0 where the system does not say.
  double share() const;

 private:
  const std::vector<unsigned> cpus_;
  const ProcessorTicks ticks_;
  const double own_;
};

}  // namespace sluice::base
