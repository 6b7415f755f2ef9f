// sluice eval: loss and perplexity of a model folder, or of a run's newest weights.
#include <spdlog/spdlog.h>

#include "apps/command.h"
#include "apps/progress.h"
#include "apps/run_dir.h"
#include "apps/training_options.h"
#include "base/error.h"
#include "engine/eval_run.h"
#include "gpu/cuda_device.h"

namespace sluice::apps {
namespace {

struct Options : ConfigOptions {
  std::string data;
};

// A run's settings are fixed, but its device may be elsewhere. The loss then differs in its last digits.
void use_device_at_hand(configs::RunConfig* config, bool strict) {
  if (config->machine.device != configs::DeviceType::cuda) return;
  const gpu::CudaUse use = gpu::can_use_cuda();
  if (use.usable) return;
  const std::string note = "the run trained on CUDA, which cannot be used here: " + use.reason;
  if (strict) base::fail(base::ErrorKind::config, "{}", note);
  spdlog::warn("{}. Evaluating on the CPU", note);
  config->machine.device = configs::DeviceType::cpu;
}

int run_eval(const Options& options) {
  const bool is_run = std::filesystem::is_directory(options.config);
  if (is_run && !options.set.empty())
    base::fail(base::ErrorKind::config, "--set goes with a config; {} is a run, whose settings are fixed", options.config);
  configs::RunConfig config = is_run ? RunDir(options.config).read_run()
                                     : configs::read_config(options.config, {.set = options.set, .purpose = configs::Purpose::reading});
  if (is_run) use_device_at_hand(&config, options.strict);
  choose_open_values(&config);
  const std::filesystem::path tokens = options.data.empty() ? config.data.eval : std::filesystem::path(options.data);
  if (tokens.empty()) base::fail(base::ErrorKind::config, "nothing to evaluate on: set data.eval in the config, or pass --data FILE");

  Progress progress;
  engine::EvalRunOptions eval;
  eval.model = model_source(config);
  eval.runtime = runtime_options(config);
  eval.runtime.queue.strict = options.strict;
  eval.tokens = tokens;
  eval.sequence = static_cast<uint32_t>(config.data.sequence_length);
  eval.micro_batch = static_cast<uint32_t>(config.micro_batch());
  eval.accumulation = static_cast<uint32_t>(config.accumulation());
  eval.plan = plan_options(config);
  if (is_run) {
    eval.run_dir = options.config;
    eval.storage = storage_paths(config);
  }
  eval.scratch = config.run.dir.has_parent_path() ? config.run.dir.parent_path() : ".";
  eval.progress = [&](const std::string& what, uint64_t done, uint64_t total) { progress.update(what, done, total); };
  const engine::EvalResult result = engine::evaluate(eval);

  if (options.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"loss", result.loss}, {"perplexity", result.perplexity()}, {"tokens", result.tokens},
                                              {"data", tokens.string()}}.dump(2));
  } else {
    fmt::print("loss {:.4f}  perplexity {:.3f}  over {} tokens of {}\n", result.loss, result.perplexity(), result.tokens, tokens.string());
  }
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, context, "eval", "Loss and perplexity of a model folder or of a run", options, run_eval);
  add_config_options(*command, *options, "JSON config (its model folder is evaluated) or the folder of a run (its newest weights)")
      ->required();
  command->add_option("--data", options->data, "Token file to evaluate on; default: data.eval of the config")->type_name("FILE");
}

}  // namespace sluice::apps
