// sluice tune: the fastest settings for this machine, as a config; nothing is loaded.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <fstream>

#include "apps/command.h"
#include "apps/output_file.h"
#include "apps/plan_output.h"
#include "apps/planning.h"
#include "apps/schedule_output.h"
#include "apps/tuning.h"
#include "base/error.h"
#include "base/units.h"
#include "configs/explain.h"

namespace sluice::apps {
namespace {

using base::ErrorKind;

struct Options : PlanningOptions {
  std::string out;
  bool tiers = false, batch = false;
  std::optional<uint64_t> tokens;
};

// With the reason of every choice.
void write_config(const Tuned& tuned, const std::string& file) {
  configs::Json document = configs::resolved_json(tuned.after.config);
  // What is left as it was has the reasons that hold for it; of another config they hold no longer.
  for (const SettingChoice& s : tuned.settings.empty() ? tuned.open : tuned.settings) document["reasons"][s.key] = s.reason;
  std::ofstream out(file, std::ios::trunc);
  out << document.dump(2) << '\n';
  if (!out.flush()) base::fail(ErrorKind::disk, "cannot write {}", file);
}

nlohmann::ordered_json tuned_json(const Tuned& tuned) {
  return {{"before", plan_json(tuned.before)},
          {"after", plan_json(tuned.after)},
          {"settings", choices_json(tuned.settings)},
          {"chosen", choices_json(tuned.open)},
          {"config", configs::resolved_json(tuned.after.config)}};
}

constexpr const char* kTableNote =
    "The table begins with the config's own values and the defaults; its steps are simulated with large tiles. before is with what the config\n"
    "leaves open chosen, as train would run it; before and after are simulated in full.\n";

std::string step_text(const PlannedRun& run) {
  return run.fits() ? fmt::format("{} a step, {:.4g} tokens/s, bound by {}", base::format_duration(run.plan.simulation.step_seconds),
                                  run.tokens_per_second(), bottleneck(run))
                    : "does not fit";
}

int run_tune(const Options& options) {
  if (options.tokens && !options.batch) base::fail(ErrorKind::config, "--tokens goes with --batch");
  const configs::RunConfig config = read_planned(options);
  check_writable("--out", options.out);
  for (const std::string& note : config.notes) spdlog::info("{}", note);
  const engine::HfConfig model = model_of(config);
  const offload::Machine machine = planned_machine(options, config, model);
  const Tuned tuned = tune(config, model, machine,
                           {.plan = {.machine = options.machine, .nodes = options.nodes, .spans = false},
                            .tiers = options.tiers,
                            .batch = options.batch,
                            .tokens_per_step = options.tokens});
  if (options.json) {
    fmt::print("{}\n", tuned_json(tuned).dump(2));
  } else {
    fmt::print("{} on {}\nbefore: {}\nafter:  {}\n", tuned.after.model, machine_text(machine),
               step_text(tuned.before), step_text(tuned.after));
    if (!tuned.settings.empty()) fmt::print("\n{}{}", choices_table(tuned.settings), kTableNote);
    if (tuned.settings.empty() && tuned.after.fits())
      fmt::print("\nnothing to change{}\n{}", tuned.open.empty() ? "" : "; what the config leaves open is chosen already", chosen_text(tuned.open));
  }
  if (tuned.after.fits() && !options.out.empty()) write_config(tuned, options.out);
  if (!tuned.after.fits()) spdlog::error("no settings were found that fit{}", options.out.empty() ? "" : "; " + options.out + " is not written");
  return verdict(tuned.after, options, machine, model);
}

}  // namespace

void add_tune(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, context, "tune", "Find the fastest settings that change no numbers, as a config; nothing is loaded",
                                  options, run_tune);
  add_planning_options(*command, *options);
  command->add_option("--out", options->out, "Write the best config here, every value in it, and why those were chosen that were")->type_name("FILE");
  command->add_flag("--tiers", options->tiers, "Also choose where weights and optimizer state live; storage.durable stays as it is");
  command->add_flag("--batch", options->batch,
                    "Also choose micro-batch and accumulation at the same tokens per step; this changes the last bits of the numbers");
  command->add_option("--tokens", options->tokens, "With --batch: tokens per step instead of the config's")->type_name("N");
  command->footer(
      "Searched: execution.overlap, boundaries, keep_graphs, keep_weights, device_slots, pools.state, pools.weights and memory.pinned,\n"
      "within memory.gpu and memory.host. (pools.gradients holds all that a step makes: with fewer it cannot run, more are of no use.) Times are simulated. Exit codes as for sluice plan.");
}

}  // namespace sluice::apps
