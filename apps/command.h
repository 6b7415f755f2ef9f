// What every subcommand shares. One file per subcommand: it defines `void add_<name>(CLI::App&, Context&)`,
// which is declared at the end of this file and called in commands.cc.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/ranks.h"

namespace sluice::apps {

// Filled while the command line is read; main runs `command` afterwards and exits with what it returns.
struct Context {
  std::function<int()> command;
};

struct CommonOptions {
  bool json = false;    // one JSON document on standard output; logs stay on standard error
  bool strict = false;  // a fallback is an error instead of a log line
};

// A command that reads a config.
struct ConfigOptions : CommonOptions {
  std::string config;
  std::vector<std::string> set;
};

// Who does the work when mpirun or another launcher has started the command several times.
enum class Workers { ranks, first };

// Adds a subcommand with --json and --strict. Options (a CommonOptions) lives until the command has run.
template <class Options>
CLI::App* add_command(CLI::App& app, Context& context, const std::string& name, const std::string& help,
                      const std::shared_ptr<Options>& options, int (*run)(const Options&), Workers workers = Workers::first) {
  CLI::App* command = app.add_subcommand(name, help);
  command->add_flag("--json", options->json, "Print one JSON document on standard output");
  command->add_flag("--strict", options->strict, "Treat every fallback as an error");
  command->callback([&context, options, run, workers] {
    context.command = [options, run, workers] { return workers == Workers::first && left_to_first_rank() ? 0 : run(*options); };
  });
  return command;
}

// The positional CONFIG and --set. `what`: help of the positional.
CLI::Option* add_config_options(CLI::App& command, ConfigOptions& options,
                                const std::string& what = "JSON config of the run");

// --world N: of a command that reads a config without being a rank.
void add_world_option(CLI::App& command, std::optional<uint64_t>& world, const std::string& help);

void add_config(CLI::App& app, Context& context);
void add_bench(CLI::App& app, Context& context);
void add_plan(CLI::App& app, Context& context);
void add_tune(CLI::App& app, Context& context);
void add_prepare(CLI::App& app, Context& context);
void add_train(CLI::App& app, Context& context);
void add_eval(CLI::App& app, Context& context);
void add_export(CLI::App& app, Context& context);
void add_init(CLI::App& app, Context& context);
void add_inspect(CLI::App& app, Context& context);
void add_report(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);

// All of the above, in the order of --help.
void add_commands(CLI::App& app, Context& context);

}  // namespace sluice::apps
