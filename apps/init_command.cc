// sluice init: a model folder with random weights.
#include <spdlog/spdlog.h>

#include "apps/command.h"
#include "apps/progress.h"
#include "base/error.h"
#include "base/topology.h"
#include "configs/json_text.h"
#include "engine/known_models.h"
#include "engine/random_model.h"

namespace sluice::apps {
namespace {

struct Options : CommonOptions {
  std::string out, sizes, family = "llama", tokenizer;
  uint64_t seed = 0;
};

int run_init(const Options& options) {
  nlohmann::ordered_json sizes = nlohmann::ordered_json::parse(options.sizes, nullptr, false);
  if (!sizes.is_object()) sizes = options.sizes;  // a name
  if (!options.tokenizer.empty() && !std::filesystem::is_directory(options.tokenizer))
    base::fail(base::ErrorKind::config, "--tokenizer {}: there is no such folder", options.tokenizer);
  Progress progress;
  engine::RandomModelOptions model;
  model.config = engine::model_of_sizes(options.family, sizes);
  model.tokenizer = options.tokenizer;
  model.out = options.out;
  model.seed = options.seed;
  model.threads = static_cast<int>(base::detect_topology().usable_cores());
  model.progress = [&](uint64_t done, uint64_t total) { progress.update("writing random weights", done, total); };
  engine::write_random_model(model);
  if (options.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"out", options.out}}.dump(2));
  } else {
    spdlog::info("wrote {} to {}", options.sizes, options.out);
  }
  return 0;
}

}  // namespace

void add_init(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, context, "init", "Make a model folder with random weights, to train from nothing or to measure", options, run_init);
  command->add_option("OUT_DIR", options->out, "Folder to make; must not exist or be empty")->required()->type_name("");
  command->add_option("--sizes", options->sizes, "Name of a known model, or a JSON object of config.json's keys")->required()->type_name("NAME|JSON");
  command->add_option("--family", options->family, "Family of sizes given as JSON: llama, mistral, qwen2, qwen3 or gpt2")->capture_default_str()->type_name("NAME");
  command->add_option("--tokenizer", options->tokenizer, "Folder whose tokenizer files come along")->type_name("DIR");
  command->add_option("--seed", options->seed, "Seed of the weights")->capture_default_str()->type_name("N");
}

}  // namespace sluice::apps
