// The sluice command: reads the command line, runs one subcommand, turns an error into one message and an
// exit code.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/failure.h"
#include "apps/logging.h"
#include "base/error.h"
#include "configs/keys.h"

namespace {

using sluice::base::Error;
using sluice::base::ErrorKind;

int report(ErrorKind kind, const std::string& message) {
  const std::string text = fmt::format("{}: {}", sluice::base::to_string(kind), message);
  sluice::apps::log_failure(text);
  fmt::print(stderr, "sluice: {}\n", text);
  return static_cast<int>(kind);
}

// A word that is no subcommand gets the list of those there are.
void check_subcommand(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  const std::string word = argv[1];
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), word) != names.end()) return;
  const auto nearest =
      std::min_element(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
        return sluice::configs::edit_distance(word, a) < sluice::configs::edit_distance(word, b);
      });
  const bool near = sluice::configs::edit_distance(word, *nearest) <= 2;
  sluice::base::fail(ErrorKind::config, "there is no command \"{}\"{}; the commands are {}", word,
                     near ? fmt::format(" (did you mean \"{}\"?)", *nearest) : "", fmt::join(names, ", "));
}

// Threads of LibTorch's OpenMP that wait at the end of a parallel loop must sleep, not spin: the cores are shared with the optimizer, the disk
// queue and whatever else runs, and a thread that spins keeps the one it waits for from running (measured: steps 10 times as long with
// other work on the machine). libgomp reads the wish when it is loaded, so the program starts itself once more.
void wait_passively(char** argv) {
  if (getenv("OMP_WAIT_POLICY") != nullptr || getenv("GOMP_SPINCOUNT") != nullptr) return;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);  // by its own path, so that ps shows its name
  if (!error && setenv("OMP_WAIT_POLICY", "passive", 1) == 0) execv(self.c_str(), argv);
}

int run(int argc, char** argv) {
  CLI::App app(
      "sluice trains language models that do not fit on the device: weights, gradients and optimizer state\n"
      "live in host memory or on NVMe and stream through. `sluice COMMAND --help` explains a command.",
      "sluice");
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.footer(
      "\nA first run: sluice doctor, sluice prepare, sluice plan CONFIG, sluice train CONFIG, sluice export RUN_DIR OUT_DIR\n"
      "Exit codes: 0 done; 2 config or command line; 3 data; 4 model files; 5 host memory; 6 device memory; 7 disk or store;\n"
      "8 loss or gradient not finite; 9 another rank died, or nobody knows why it failed; 10 a goal is missed (plan); 75 stopped by a signal, go on with --resume auto; 1 an error of sluice itself");
  app.require_subcommand(1);
  sluice::apps::Context context;
  sluice::apps::add_commands(app, context);
  check_subcommand(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    return report(ErrorKind::config, fmt::format("{} (see sluice {}--help)", error.what(),
                                                 chosen.empty() ? "" : chosen.front()->get_name() + " "));
  }
  return context.command();
}

}  // namespace

int main(int argc, char** argv) {
  wait_passively(argv);
  sluice::apps::start_logging();
  try {
    return run(argc, argv);
  } catch (const sluice::apps::PeerError& error) {
    report(error.kind(), error.what());
    return static_cast<int>(error.cause());
  } catch (const std::exception&) {
    const Error error = sluice::apps::current_error();
    return report(error.kind(), error.what());
  }
}
