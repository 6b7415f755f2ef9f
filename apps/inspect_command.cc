// sluice inspect: what a run holds, and the identity of its bits.
#include "apps/command.h"
#include "apps/stored_run.h"
#include "base/hash.h"
#include "configs/explain.h"
#include "configs/json_text.h"
#include "engine/state_reader.h"

namespace sluice::apps {
namespace {

struct Options : CommonOptions {
  std::string run;
  bool verify = false;
};

int run_inspect(const Options& options) {
  const StoredRun run(options.run, options.strict);
  if (options.verify) run.store->verify();
  const offload::StepMeta meta = run.store->meta();
  const engine::StateDigest digest = engine::digest_state(run.layout, *run.store, run.store->published());
  const configs::Json document{{"step", meta.step},
                               {"world", run.layout.world()},
                               {"samples", meta.samples},
                               {"tokens", meta.tokens},
                               {"skipped", meta.skipped},
                               {"generation", run.store->generation()},
                               {"weights_xxh3", base::hash_hex(digest.weights)},
                               {"state_xxh3", base::hash_hex(digest.state)},
                               {"config", configs::resolved_json(run.config)}};
  if (options.json) {
    fmt::print("{}\n", document.dump(2));
    return 0;
  }
  for (const auto& [key, value] : document.items())
    if (key != "config") fmt::print("{:<14} {}\n", key, configs::plain(value));
  if (options.verify) fmt::print("every extent matches its checksum\n");
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, context, "inspect", "Print the step of a run and hashes of its weights and state", options, run_inspect);
  command->add_option("RUN_DIR", options->run, "Folder of the run")->required()->type_name("");
  command->add_flag("--verify", options->verify, "Also check every stored byte against its checksum");
}

}  // namespace sluice::apps
