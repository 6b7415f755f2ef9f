#include "apps/overlap_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/planned_run.h"

namespace sluice::apps {

using offload::Placement;

namespace {

// A guess has to gain this much before it is made at all: a wrong one is a pause.
constexpr double kWorthIt = 0.97;

engine::RunPlan simulated(const configs::RunConfig& config, const engine::HfConfig& model, const offload::Machine& machine, Placement placement) {
  configs::RunConfig tried = config;
  tried.execution.overlap = placement;
  return plan_config(std::move(tried), model, machine, {}).plan;
}

// The tiles that were updated on the guess are read, updated and written once more, with nothing else at work.
double redo_seconds(const offload::Layout& layout, const offload::Machine& machine, double share) {
  const double parameters = share * static_cast<double>(layout.trainable_elements()), bytes = 12 * parameters;
  const double disk = machine.disk_mixed > 0 ? 2 * bytes / machine.disk_mixed : 0;
  return std::max(disk, machine.adam > 0 ? parameters / machine.adam : 0);
}

}  // namespace

OverlapChoice choose_overlap(const configs::RunConfig& config, const engine::HfConfig& model, const offload::Machine& machine) {
  const double none = simulated(config, model, machine, Placement::none).simulation.step_seconds;
  const double forward = simulated(config, model, machine, Placement::forward).simulation.step_seconds;
  OverlapChoice choice{none < forward ? Placement::none : Placement::forward, std::nullopt,
                       fmt::format("a step takes {:.3g} s with none, {:.3g} s with forward", none, forward)};
  // Without a spare of the old state a guess cannot be taken back.
  if (config.storage.durable != offload::Durable::step) return choice;
  const engine::RunPlan spread = simulated(config, model, machine, Placement::spread);
  const double seconds = spread.simulation.step_seconds, best = std::min(none, forward);
  choice.reason += fmt::format(", {:.3g} s with spread", seconds);
  if (seconds >= kWorthIt * best) return choice;
  choice.placement = Placement::spread;
  constexpr double kGuessed = 0.75;  // share of the tiles
  choice.guess_limit = std::min(1.0, (best - seconds) / redo_seconds(*spread.layout, machine, kGuessed));
  return choice;
}

}  // namespace sluice::apps
