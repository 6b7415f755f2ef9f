#include "apps/command.h"

namespace sluice::apps {

CLI::Option* add_config_options(CLI::App& command, ConfigOptions& options, const std::string& what) {
  command
      .add_option("--set", options.set,
                  "Set a key of the config, as key=value; the value is JSON or a bare word; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  return command.add_option("CONFIG", options.config, what)->type_name("");
}

void add_world_option(CLI::App& command, std::optional<uint64_t>& world, const std::string& help) {
  command.add_option("--world", world, help)->type_name("N")->check(CLI::Range(uint64_t{1}, uint64_t{comm::kMostRanks}));
}

void add_commands(CLI::App& app, Context& context) {
  add_doctor(app, context);
  add_bench(app, context);
  add_init(app, context);
  add_prepare(app, context);
  add_config(app, context);
  add_plan(app, context);
  add_tune(app, context);
  add_train(app, context);
  add_eval(app, context);
  add_export(app, context);
  add_inspect(app, context);
  add_report(app, context);
}

}  // namespace sluice::apps
