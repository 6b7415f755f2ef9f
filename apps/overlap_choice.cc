#include "apps/overlap_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "apps/shadow_choice.h"
#include "base/units.h"

namespace sluice::apps {

using offload::Placement;

namespace {

// A guess has to gain this much before it is made at all: a wrong one is a pause.
constexpr double kWorthIt = 0.97;

double seconds(configs::RunConfig config, const ScheduleSearch& search, Placement placement) {
  config.execution.overlap = placement;
  return search.seconds(config).value_or(std::numeric_limits<double>::infinity());
}

// The tiles that were updated on the guess are read (or copied), updated and written once more, with nothing else at work.
double redo_seconds(const configs::RunConfig& config, const ScheduleSearch& search, double share) {
  const offload::Machine& machine = search.machine();
  const double parameters = share * static_cast<double>(search.parameters()), bytes = parameters * static_cast<double>(search.parameter_bytes());
  const bool shadows = needs_shadows(config, Placement::spread);
  const double disk = machine.disk_mixed > 0 && !shadows ? 2 * bytes / machine.disk_mixed : 0;
  return std::max(disk, machine.adam > 0 ? (shadows ? 4 : 2) * bytes / (offload::kAdamBytes * machine.adam) : 0);
}

// The last layers, whose gradients come first, are updated in the backward, as far as it has time for more than their update.
OverlapChoice with_shadows(configs::RunConfig config, const ScheduleSearch& search, OverlapChoice choice) {
  const double without = choice.seconds;
  const auto all = static_cast<double>(search.parameters() * search.parameter_bytes());
  std::vector<double> bytes{all / 8, all / 4, all / 2};
  if (config.memory.shadow) bytes = {static_cast<double>(*config.memory.shadow)};
  for (const double shadow : bytes) {
    config.memory.shadow = static_cast<uint64_t>(shadow);
    const double found = seconds(config, search, Placement::backward);
    if (found >= kWorthIt * without || found >= choice.seconds) continue;
    choice.placement = Placement::backward;
    choice.seconds = found;
    choice.shadow = config.memory.shadow;
    choice.guess_limit = std::min(1.0, (without - found) / redo_seconds(config, search, shadow / all));
  }
  if (choice.shadow) choice.reason += fmt::format(", {:.4g} s with backward and {} of shadows", choice.seconds, base::format_bytes(*choice.shadow));
  return choice;
}

}  // namespace

OverlapChoice choose_overlap(const configs::RunConfig& config, const ScheduleSearch& search) {
  const double none = seconds(config, search, Placement::none), forward = seconds(config, search, Placement::forward);
  OverlapChoice choice{none < forward ? Placement::none : Placement::forward, std::min(none, forward), std::nullopt, std::nullopt,
                       fmt::format("a step takes {:.4g} s with none, {:.4g} s with forward", none, forward)};
  // Without a spare of the old state a guess cannot be taken back.
  if (config.storage.durable != offload::Durable::step) return needs_shadows(config, Placement::backward) ? with_shadows(config, search, choice) : choice;
  const double spread = seconds(config, search, Placement::spread), best = choice.seconds;
  choice.reason += fmt::format(", {:.4g} s with spread", spread);
  if (spread >= kWorthIt * best) return choice;
  choice.placement = Placement::spread;
  choice.seconds = spread;
  constexpr double kGuessed = 0.75;  // share of the tiles
  choice.guess_limit = std::min(1.0, (best - spread) / redo_seconds(config, search, kGuessed));
  return choice;
}

}  // namespace sluice::apps
