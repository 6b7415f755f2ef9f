// sluice plan: what a run would need and how long a step would take; nothing is loaded.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "apps/amounts.h"
#include "apps/command.h"
#include "apps/largest_model.h"
#include "apps/output_file.h"
#include "apps/plan_output.h"
#include "apps/plan_sweep.h"
#include "apps/planning.h"
#include "apps/schedule_choice.h"
#include "apps/schedule_output.h"
#include "base/error.h"
#include "engine/known_models.h"

namespace sluice::apps {
namespace {

using base::ErrorKind;

struct Options : PlanningOptions {
  std::string trace;
  std::vector<std::string> sweep;
};

PlannedRun plan_set(const Options& options, const offload::Machine& machine,
                    const std::vector<std::string>& set) {
  const configs::RunConfig config = read_planned(options, set);
  return plan_open(config, model_of(config), machine,
                   {.machine = options.machine, .nodes = options.nodes, .spans = !options.trace.empty()}).run;
}

int run_plan(const Options& options) {
  check_writable("--trace", options.trace);
  const configs::RunConfig config = read_planned(options);
  for (const std::string& note : config.notes) spdlog::info("{}", note);
  const engine::HfConfig model = model_of(config);
  const offload::Machine machine = planned_machine(options, config, model);
  if (!options.sweep.empty()) {
    if (!options.trace.empty()) base::fail(ErrorKind::config, "--trace goes with one plan, not with --sweep");
    const auto rows = run_sweep(read_sweeps(options.sweep),
                                [&](const auto& set) { return plan_set(options, machine, set); });
    fmt::print("{}", options.json ? sweep_json(rows).dump(2) + "\n" : sweep_text(rows));
    if (std::ranges::any_of(rows, [](const SweepRow& row) { return row.run.has_value(); })) return 0;
    base::fail(ErrorKind::config, "--sweep: none of the {} rows can be planned; the table says why", rows.size());
  }
  const OpenPlan open = plan_open(config, model, machine,
                                  {.machine = options.machine, .nodes = options.nodes, .spans = !options.trace.empty()});
  const PlannedRun& run = open.run;
  const std::optional<LargestModel> largest = largest_model(run, model);
  if (options.json) {
    nlohmann::ordered_json document = plan_json(run);
    document["largest"] = largest ? nlohmann::ordered_json{{"layers", largest->layers}, {"parameters", largest->parameters}} : nullptr;
    document["chosen"] = choices_json(open.choice.settings);
    fmt::print("{}\n", document.dump(2));
  } else {
    fmt::print("{}{}", plan_text(run), chosen_text(open.choice.settings));
    if (largest)
      fmt::print("{:<16} with these settings {} layers of this width fit: {} parameters\n", "largest model", largest->layers,
                 parameter_count(static_cast<double>(largest->parameters)));
  }
  if (!options.trace.empty()) {
    if (!run.timed()) base::fail(ErrorKind::disk, "--trace {}: without the disk's rates there is no step to trace; name a profile with --machine", options.trace);
    base::Trace trace;
    trace_spans(run.plan.plan, run.plan.simulation, trace);
    trace.write(options.trace);
  }
  return verdict(run, options, machine, model);
}

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, context, "plan", "Say what a run needs and how long a step takes; nothing is loaded",
                  options, run_plan);
  add_planning_options(*command, *options);
  command
      ->add_option("--sweep", options->sweep,
                   "Plan with each of these values of a key and print a table; a list in brackets is several values: [1,4] or "
                   "[none,forward]; repeatable, all combinations")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--trace", options->trace,
                   "Write a Chrome trace of all that is at work during two simulated steps, as train --trace writes them")
      ->type_name("FILE");
  command->footer(
      "Exit codes: 5, 6, 7 when memory or disk do not suffice (with the setting that would fit), 10 when a "
      "goal is missed.\n"
      "Models that need no files: \"model\": {\"sizes\": NAME}, with NAME one of " +
      fmt::format("{}", fmt::join(engine::known_models(), ", ")));
}

}  // namespace sluice::apps
