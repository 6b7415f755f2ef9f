// sluice export: a run's newest weights as a Hugging Face folder.
#include <spdlog/spdlog.h>

#include <map>

#include "apps/command.h"
#include "apps/progress.h"
#include "apps/stored_run.h"
#include "apps/training_options.h"
#include "base/error.h"
#include "engine/hf_writer.h"
#include "engine/model_source.h"
#include "engine/state_reader.h"

namespace sluice::apps {
namespace {

struct Options : CommonOptions {
  std::string run, out, dtype;
};

int run_export(const Options& options) {
  const StoredRun run(options.run, options.strict);
  for (const std::string& note : run.report.notes) spdlog::info("{}", note);
  const auto expected = engine::expected_tensors(engine::describe(run.reader.config(), model_source(run.config)));
  run.reader.check(expected);
  std::map<std::string, uint32_t> block_of;
  for (uint32_t block = 0; block < run.layout.blocks().size(); ++block)
    for (const auto& tensor : run.layout.blocks()[block].tensors) block_of[tensor.name] = block;

  Progress progress;
  engine::ExportOptions writing;
  writing.out = options.out;
  writing.dtype = options.dtype;
  writing.progress = [&](uint64_t done, uint64_t total) { progress.update("exporting", done, total); };
  engine::StateReader state(run.layout, *run.store, run.store->published());
  engine::HfWriter(run.reader, expected, writing).write([&](const std::string& name, uint64_t first, std::span<float> out) {
    state.master(block_of.at(name), run.layout.tensor(name), first, out.size(), out.data());
  });
  const uint64_t step = run.store->meta().step;
  if (options.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"out", options.out}, {"step", step}}.dump(2));
  } else {
    spdlog::info("exported step {} of {} to {}", step, options.run, options.out);
  }
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, context, "export", "Write the newest weights of a run as a Hugging Face folder", options, run_export);
  command->add_option("RUN_DIR", options->run, "Folder of the run")->required()->type_name("");
  command->add_option("OUT_DIR", options->out, "Folder to make; must not exist or be empty")->required()->type_name("");
  command->add_option("--dtype", options->dtype, "Number type of the weights; default: as in the source model")
      ->check(CLI::IsMember({"BF16", "F16", "F32"}));
}

}  // namespace sluice::apps
