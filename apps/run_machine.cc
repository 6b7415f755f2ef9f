#include "apps/run_machine.h"

#include <spdlog/spdlog.h>

#include "apps/machine_choice.h"
#include "apps/run_dir.h"
#include "apps/run_metrics.h"
#include "apps/schedule_choice.h"
#include "apps/training_options.h"
#include "base/topology.h"

namespace sluice::apps {
namespace {

using offload::Machine;

constexpr double kCoreRate = 1e11;      // FLOP per second that few cores exceed in bf16
constexpr double kGpuRate = 1e14;       // of a GPU
constexpr double kWorthMeasuring = 60;  // seconds of arithmetic in the rest of the run; measuring takes some five
constexpr double kTinyStep = 0.05;      // seconds: such a step is made of what no machine profile knows

uint64_t steps_left(const configs::RunConfig& config) {
  const RunDir run(config.run.dir);
  const uint64_t steps = config.steps.value_or(0);
  if (!run.has_store() || !std::filesystem::exists(run.metrics_file())) return steps;
  const RunMetrics metrics = read_metrics(run.metrics_file());
  const uint64_t done = metrics.steps.empty() ? 0 : metrics.steps.back().step;
  return steps > done ? steps - done : 0;
}

double likely_rate(const configs::RunConfig& config) {
  if (config.machine.compute) return *config.machine.compute;
  return config.machine.device == configs::DeviceType::cuda ? kGpuRate : kCoreRate * base::detect_topology().usable_cores();
}

// Of forward and backward alone.
double arithmetic_seconds(const configs::RunConfig& config, const engine::HfConfig& model) {
  uint64_t parameters = 0;
  for (const auto& block : engine::describe(model, model_source(config)).blocks)
    for (const auto& tensor : block.tensors) parameters += tensor.count();
  const double tokens = static_cast<double>(config.micro_batch() * config.accumulation() * config.data.sequence_length);
  return 6 * static_cast<double>(parameters) * tokens / likely_rate(config);
}

bool worth_measuring(const configs::RunConfig& config, const engine::HfConfig& model) {
  const double step = arithmetic_seconds(config, model);
  return step >= kTinyStep && step * static_cast<double>(steps_left(config)) >= kWorthMeasuring;
}

// The rates are the profile's, the memory is what there is here.
Machine named_machine(const std::string& name, const configs::RunConfig& config, const engine::HfConfig& model) {
  Machine machine = choose_machine(name, config, model);
  machine.gpu_bytes = device_memory(config);
  machine.host_bytes = host_memory(config);
  return machine;
}

std::optional<Machine> this_machine(bool again, const configs::RunConfig& config, const engine::HfConfig& model) {
  if (again) return choose_machine("", config, model, /*again=*/true);
  if (const auto known = known_machine(config, model)) return known;
  if (asks_for_choice(config) || worth_measuring(config, model)) return choose_machine("", config, model);
  spdlog::info("nothing is predicted: this machine has not been measured, and the run is short. `sluice plan` or --measure does so");
  return std::nullopt;
}

}  // namespace

std::optional<Machine> run_machine(const MachineOptions& options, const configs::RunConfig& config, const engine::HfConfig& model, const RankSession& ranks) {
  std::optional<Machine> machine;
  if (!options.machine.empty()) machine = named_machine(options.machine, config, model);
  if (ranks.several() && !config.machine.links.net && (!machine || machine->net <= 0)) {
    spdlog::info("nothing is predicted: how fast ranks exchange is not known. `sluice bench --nproc N --out FILE` measures it, for --machine FILE");
    return std::nullopt;
  }
  if (!machine) {
    configs::RunConfig whole = config;  // the machine's rates are those of all its cores, which the ranks then share
    if (ranks.several()) whole.machine.compute_threads.reset(), whole.execution.optimizer_threads.reset();
    machine = this_machine(options.measure, whole, model);
  }
  if (machine) machine = shared_by(*machine, ranks.on_this_host());
  return machine;
}

}  // namespace sluice::apps
