// sluice tune: the fastest settings for this machine, as a config; nothing is loaded.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <fstream>

#include "apps/command.h"
#include "apps/fit_advice.h"
#include "apps/machine_choice.h"
#include "apps/output_file.h"
#include "apps/plan_output.h"
#include "apps/schedule_output.h"
#include "apps/training_options.h"
#include "apps/tuning.h"
#include "base/error.h"
#include "base/units.h"
#include "configs/explain.h"
#include "configs/read_config.h"

namespace sluice::apps {
namespace {

using base::ErrorKind;

struct Options : ConfigOptions {
  std::string machine, out;
  bool tiers = false, batch = false;
  std::optional<uint64_t> tokens;
};

void write_config(const configs::RunConfig& config, const std::string& file) {
  std::ofstream out(file, std::ios::trunc);
  out << configs::resolved_json(config).dump(2) << '\n';
  if (!out.flush()) base::fail(ErrorKind::disk, "cannot write {}", file);
}

nlohmann::ordered_json tuned_json(const Tuned& tuned) {
  return {{"before", plan_json(tuned.before)},
          {"after", plan_json(tuned.after)},
          {"settings", choices_json(tuned.settings)},
          {"config", configs::resolved_json(tuned.after.config)}};
}

std::string step_text(const PlannedRun& run) {
  return run.fits() ? fmt::format("{} a step, {:.4g} tokens/s, bound by {}", base::format_duration(run.plan.simulation.step_seconds),
                                  run.tokens_per_second(), bottleneck(run))
                    : "does not fit";
}

int run_tune(const Options& options) {
  if (options.tokens && !options.batch) base::fail(ErrorKind::config, "--tokens goes with --batch");
  configs::RunConfig config = configs::read_config(options.config, {.set = options.set, .purpose = configs::Purpose::planning});
  check_writable("--out", options.out);
  choose_threads(&config);
  for (const std::string& note : config.notes) spdlog::info("{}", note);
  const engine::HfConfig model = model_of(config);
  const offload::Machine machine = choose_machine(options.machine, config, model);
  const Tuned tuned = tune(config, model, machine,
                           {.plan = {.machine = options.machine, .spans = false},
                            .tiers = options.tiers,
                            .batch = options.batch,
                            .tokens_per_step = options.tokens});
  if (options.json) {
    fmt::print("{}\n", tuned_json(tuned).dump(2));
  } else {
    fmt::print("{} on {}{}\nbefore: {}\nafter:  {}\n", tuned.after.model, machine.name, machine.assumed ? " (assumed rates)" : "",
               step_text(tuned.before), step_text(tuned.after));
    if (!tuned.settings.empty()) fmt::print("\n{}", choices_table(tuned.settings));
    if (tuned.settings.empty() && tuned.after.fits()) fmt::print("\nnothing to change\n");
  }
  if (!options.out.empty()) write_config(tuned.after.config, options.out);
  if (tuned.after.fits()) return 0;
  spdlog::error("no settings were found that fit: {}", fit_advice(tuned.after, model));
  return static_cast<int>(!tuned.after.fits("gpu")    ? ErrorKind::device_memory
                          : !tuned.after.fits("host") ? ErrorKind::host_memory
                                                      : ErrorKind::disk);
}

}  // namespace

void add_tune(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, context, "tune", "Find the fastest settings that change no numbers, as a config; nothing is loaded",
                                  options, run_tune);
  add_config_options(*command, *options)->required();
  command->add_option("--out", options->out, "Write the best config here, every value in it")->type_name("FILE");
  command
      ->add_option("--machine", options->machine, "Profile of the machine, as for sluice plan; without it this machine, measured once")
      ->type_name("FILE|NAME");
  command->add_flag("--tiers", options->tiers, "Also choose where weights and optimizer state live; storage.durable stays as it is");
  command->add_flag("--batch", options->batch,
                    "Also choose micro-batch and accumulation at the same tokens per step; this changes the last bits of the numbers");
  command->add_option("--tokens", options->tokens, "With --batch: tokens per step instead of the config's")->type_name("N");
  command->footer(
      "Searched: execution.overlap, boundaries, keep_graphs, keep_weights, device_slots, pools.state and memory.pinned, within memory.gpu\n"
      "and memory.host. Times are simulated. Exit codes as for sluice plan.");
}

}  // namespace sluice::apps
