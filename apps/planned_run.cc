#include "apps/planned_run.h"

#include <algorithm>
#include <cmath>

#include "apps/machine_choice.h"
#include "apps/memory_report.h"
#include "apps/resident_choice.h"
#include "apps/shadow_choice.h"
#include "apps/training_options.h"
#include "engine/known_models.h"
#include "engine/run_shape.h"
#include "engine/token_file.h"

namespace sluice::apps {

using offload::Lane;

namespace {

constexpr double kDay = 86400;

uint64_t bytes(const offload::Simulation& s, Lane lane) {
  return s.bytes[static_cast<size_t>(lane)];
}

double seconds_of(const offload::Simulation& s, offload::Resource resource) {
  for (const offload::Bound& bound : s.bounds)
    if (bound.resource == resource) return bound.seconds;
  return 0;
}

}  // namespace

engine::RunPlanOptions run_plan_options(const configs::RunConfig& config, const engine::HfConfig& model,
                                        const offload::Machine& machine) {
  engine::RunPlanOptions o;
  o.config = model;
  o.trainer = trainer_options(config);
  o.machine = machine;
  o.gpu = machine.device_memory_rate > 0 && config.machine.device != configs::DeviceType::cpu;
  o.compute_threads = config.machine.compute_threads.value_or(1);
  return o;
}

namespace {

// Of the file's header; none: there is no file (yet).
std::optional<uint64_t> train_tokens(const configs::RunConfig& config) {
  if (config.data.train.empty() || !std::filesystem::exists(config.data.train)) return {};
  return engine::count_tokens(config.data.train);
}

void plan_length(PlannedRun& run) {
  const configs::RunConfig& c = run.config;
  const std::optional<uint64_t> tokens = train_tokens(c);
  if (tokens) run.epoch_hours = static_cast<double>(*tokens) / run.tokens_per_second() / 3600;
  if (c.steps) {
    run.steps = static_cast<double>(*c.steps);
  } else if (c.epochs && tokens) {
    run.steps = std::ceil(*c.epochs * static_cast<double>(*tokens) / run.tokens_per_step());
  }
  if (run.steps) run.run_hours = *run.steps * run.plan.simulation.step_seconds / 3600;
}

// A drive that is nearly full is not measured.
bool needs_unknown_disk(const PlannedRun& run) {
  const configs::RunConfig& c = run.config;
  const bool uses = c.zero_optimization.offload_param.device == offload::Tier::nvme ||
                    c.zero_optimization.offload_optimizer.device == offload::Tier::nvme || c.storage.durable == offload::Durable::step;
  return uses && (run.machine.disk_read <= 0 || run.machine.disk_write <= 0);
}

void plan_goals(PlannedRun& run) {
  RunTotals totals;
  totals.hours = run.run_hours;
  totals.step_seconds = run.plan.simulation.step_seconds;
  if (run.steps) totals.disk_written = *run.steps * static_cast<double>(run.disk_written());
  run.goals = compare_goals(run.config.goals, totals, "give steps, or epochs and data.train", "only training can tell");
}

}  // namespace

uint64_t PlannedRun::have(std::string_view place) const {
  return place == "gpu" ? memory.gpu_have : place == "host" ? memory.host_have : memory.disk_have;
}
bool PlannedRun::fits(std::string_view place) const {
  return have(place) == 0 || need(place) <= have(place);
}
bool PlannedRun::fits() const {
  return fits("gpu") && fits("host") && fits("disk");
}

double PlannedRun::tokens_per_step() const {
  return static_cast<double>(config.micro_batch()) * static_cast<double>(config.accumulation()) *
         static_cast<double>(config.data.sequence_length) * static_cast<double>(config.run.world);
}

uint64_t PlannedRun::disk_read() const {
  return bytes(plan.simulation, Lane::disk_weights) + bytes(plan.simulation, Lane::disk_state);
}
uint64_t PlannedRun::disk_written() const {
  return bytes(plan.simulation, Lane::disk_write_weights) + bytes(plan.simulation, Lane::disk_write_state);
}

double PlannedRun::written_per_day() const {
  return static_cast<double>(disk_written()) / plan.simulation.step_seconds * kDay;
}

std::optional<double> PlannedRun::days_of_drive() const {
  if (!config.storage.tbw || disk_written() == 0) return {};
  return static_cast<double>(*config.storage.tbw) / written_per_day();
}

// Computation grows with the tokens of a step, nothing else does.
std::optional<double> PlannedRun::device_limit_tokens() const {
  const double compute = seconds_of(plan.simulation, offload::Resource::compute);
  double other = 0;
  for (const offload::Bound& b : plan.simulation.bounds)
    if (b.resource != offload::Resource::compute && b.resource != offload::Resource::cores)
      other = std::max(other, b.seconds);
  if (compute <= 0 || other <= 0) return {};
  return tokens_per_step() * other / compute;
}

std::optional<double> PlannedRun::hidden_communication() const {
  const double busy = plan.simulation.busy[static_cast<size_t>(Lane::comm)];
  if (busy <= 0) return {};
  return std::clamp(1 - plan.simulation.exposed / busy, 0.0, 1.0);
}

double PlannedRun::first_step_seconds() const {
  const uint64_t weights = plan.layout->parameters() * offload::weight_bytes(plan.layout->schema());
  const auto over = [&](double rate) { return rate > 0 ? static_cast<double>(weights) / rate : 0; };
  return over(machine.disk_read) + over(machine.disk_write) + plan.simulation.first_seconds;
}

engine::HfConfig model_of(const configs::RunConfig& config) {
  return config.model.path.empty() ? engine::model_of_sizes(config.model.family, config.model.sizes)
                                   : engine::read_hf_config(config.model.path);
}

PlannedRun plan_config(configs::RunConfig config, const engine::HfConfig& model,
                       const offload::Machine& machine, const PlanRequest& request) {
  PlannedRun run;
  run.machine = with_emulated_rates(machine, config.machine);
  run.memory.gpu_have = config.memory.gpu.value_or(machine.gpu_bytes);
  run.memory.host_have = config.memory.host.value_or(machine.host_bytes);
  choose_tiers(&config, engine::describe(model, model_source(config)), run.memory.gpu_have,
               run.memory.host_have);
  choose_threads(&config);
  choose_resident_blocks(&config, model, run.memory.gpu_have);
  choose_shadow(&config, model, run.memory.host_have);
  run.config = std::move(config);
  run.model = run.config.model.path.empty() ? run.config.model.sizes.is_string()
                                                  ? run.config.model.sizes.get<std::string>()
                                                  : run.config.model.family
                                            : run.config.model.path.string();
  engine::RunPlanOptions options = run_plan_options(run.config, model, run.machine);
  options.spans = request.spans;
  options.memory_only = request.memory_only || (request.machine.empty() && needs_unknown_disk(run));
  options.trainer.guess_limit = request.guess_limit;
  run.plan = engine::plan_run(options);
  run.memory.rows = run.plan.memory;
  run.memory.disk_have = request.machine.empty() ? disk_available(run.config, run.need("disk")) : machine.disk_bytes;
  if (!run.timed()) return run;
  plan_length(run);
  plan_goals(run);
  return run;
}

}  // namespace sluice::apps
