// sluice plan: what a run would need and how long a step would take; nothing is loaded.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "apps/command.h"
#include "apps/fit_advice.h"
#include "apps/largest_model.h"
#include "apps/machine_choice.h"
#include "apps/output_file.h"
#include "apps/plan_output.h"
#include "apps/plan_sweep.h"
#include "apps/schedule_choice.h"
#include "apps/schedule_output.h"
#include "apps/training_options.h"
#include "base/error.h"
#include "configs/machine_profile.h"
#include "configs/read_config.h"
#include "configs/resolve.h"
#include "engine/known_models.h"

namespace sluice::apps {
namespace {

using base::ErrorKind;

struct Options : ConfigOptions {
  std::string machine, trace;
  std::vector<std::string> sweep;
  std::optional<uint64_t> world;
  uint64_t nodes = 1;
};

configs::RunConfig read(const Options& options, const std::vector<std::string>& more) {
  std::vector<std::string> set = options.set;
  set.insert(set.end(), more.begin(), more.end());
  configs::RunConfig config =
      configs::read_config(options.config, {.set = set, .purpose = configs::Purpose::planning, .world = options.world});
  if (config.run.world % options.nodes != 0)
    base::fail(ErrorKind::config, "--nodes {}: {} ranks cannot be shared out evenly", options.nodes, config.run.world);
  choose_threads(&config);
  return config;
}

PlannedRun plan_set(const Options& options, const offload::Machine& machine,
                    const std::vector<std::string>& set) {
  const configs::RunConfig config = read(options, set);
  return plan_open(config, model_of(config), machine,
                   {.machine = options.machine, .spans = !options.trace.empty()}).run;
}

// The exit code that a run with this config would end with, or that of a missed goal.
int verdict(const PlannedRun& run, const engine::HfConfig& model) {
  if (!run.fits()) {
    spdlog::error("it does not fit: {}", fit_advice(run, model));
    return static_cast<int>(!run.fits("gpu")    ? ErrorKind::device_memory
                            : !run.fits("host") ? ErrorKind::host_memory
                                                : ErrorKind::disk);
  }
  for (const Goal& goal : run.goals)
    if (goal.missed()) return static_cast<int>(ErrorKind::goal);
  return 0;
}

int run_plan(const Options& options) {
  check_writable("--trace", options.trace);
  const configs::RunConfig config = read(options, {});
  for (const std::string& note : config.notes) spdlog::info("{}", note);
  const engine::HfConfig model = model_of(config);
  const offload::Machine machine =
      shared_by(choose_machine(options.machine, config, model), config.run.world / options.nodes);
  if (!options.sweep.empty()) {
    if (!options.trace.empty()) base::fail(ErrorKind::config, "--trace goes with one plan, not with --sweep");
    const auto rows = run_sweep(read_sweeps(options.sweep),
                                [&](const auto& set) { return plan_set(options, machine, set); });
    fmt::print("{}", options.json ? sweep_json(rows).dump(2) + "\n" : sweep_text(rows));
    return 0;
  }
  const OpenPlan open = plan_open(config, model, machine, {.machine = options.machine, .spans = !options.trace.empty()});
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
      fmt::print("{:<16} with these settings {} layers of this width fit: {:.3g} B parameters\n", "largest model", largest->layers,
                 static_cast<double>(largest->parameters) / 1e9);
  }
  if (!options.trace.empty()) {
    base::Trace trace;
    trace_spans(run.plan.plan, run.plan.simulation, trace);
    trace.write(options.trace);
  }
  return verdict(run, model);
}

std::string machine_names() {
  std::string names;
  for (const offload::Machine& machine : configs::builtin_machines())
    names += (names.empty() ? "" : ", ") + machine.name;
  return names;
}

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, context, "plan", "Say what a run needs and how long a step takes; nothing is loaded",
                  options, run_plan);
  add_config_options(*command, *options)->required();
  command
      ->add_option("--machine", options->machine,
                   "Profile of the machine, a JSON file or a built-in one (" + machine_names() +
                       "); without it this machine is measured once, in a few seconds")
      ->type_name("FILE|NAME");
  command
      ->add_option("--sweep", options->sweep,
                   "Plan with each of these values of a key (JSON; a list is several values) and print a "
                   "table; repeatable, all combinations")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--world", options->world, "Plan for so many ranks, without starting them; the table is of rank 0, whose shard is the largest")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command->add_option("--nodes", options->nodes, "Machines that the ranks are on; those of one share its drives, memory and cores")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--trace", options->trace,
                   "Write a Chrome trace of two simulated steps, as train --trace writes them")
      ->type_name("FILE");
  command->footer(
      "Exit codes: 5, 6, 7 when memory or disk do not suffice (with the setting that would fit), 10 when a "
      "goal is missed.\n"
      "Models that need no files: \"model\": {\"sizes\": NAME}, with NAME one of " +
      fmt::format("{}", fmt::join(engine::known_models(), ", ")));
}

}  // namespace sluice::apps
