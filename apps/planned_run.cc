#include "apps/planned_run.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

double seconds_of(const std::vector<offload::Bound>& bounds, offload::Resource resource) {
  for (const offload::Bound& bound : bounds)
    if (bound.resource == resource) return bound.seconds;
  return 0;
}

}  // namespace

bool on_gpu(const configs::RunConfig& config, const offload::Machine& machine) {
  return machine.device_memory_rate > 0 && config.machine.device != configs::DeviceType::cpu;
}

engine::RunPlanOptions run_plan_options(const configs::RunConfig& config, const engine::HfConfig& model,
                                        const offload::Machine& machine) {
  engine::RunPlanOptions o;
  o.config = model;
  o.trainer = trainer_options(config);
  o.machine = machine;
  o.gpu = on_gpu(config, machine);
  o.compute_threads = config.machine.compute_threads.value_or(1);
  return o;
}

namespace {

// Of the file's header; none: there is no file (yet).
std::optional<uint64_t> tokens_in(const std::filesystem::path& file) {
  if (file.empty() || !std::filesystem::exists(file)) return {};
  return engine::count_tokens(file);
}

bool evaluates(const configs::RunConfig& config) { return config.run.eval_every > 0 && tokens_in(config.data.eval); }

// Pools are filled once.
double evaluation_seconds(const PlannedRun& run) {
  if (!run.plan.evaluation) return 0;
  const double periods = std::ceil(static_cast<double>(*tokens_in(run.config.data.eval)) / run.tokens_per_step());
  return run.plan.evaluation->first_seconds + (periods - 1) * run.plan.evaluation->step_seconds;
}

// Two flushes: of the data, and of the record.
double commit_seconds(const PlannedRun& run) {
  const double rate = run.machine.disk_write;
  return (rate > 0 ? static_cast<double>(run.plan.commit_bytes) / rate : 0) + 2 * run.machine.flush;
}

// An open end has no last commit.
void plan_pauses(PlannedRun& run) {
  RunSchedule schedule = run_schedule(run.config);
  const auto each = [&](uint64_t in_all, uint64_t every) {
    return run.steps ? static_cast<double>(in_all) / *run.steps : every > 0 ? 1 / static_cast<double>(every) : 0;
  };
  if (run.steps) schedule.steps = static_cast<uint64_t>(*run.steps);
  if (schedule.commits_memory) {
    run.commits_per_step = each(schedule.commits_after(0), schedule.commit_every);
    run.pauses.commit_seconds = commit_seconds(run);
    run.pauses.commit_bytes = static_cast<double>(run.ranks_here * run.plan.commit_bytes);
  }
  if (!run.plan.evaluation) return;
  run.evaluations_per_step = each(schedule.evaluations_after(0), schedule.eval_every);
  run.pauses.eval_seconds = evaluation_seconds(run);
}

void plan_length(PlannedRun& run) {
  const configs::RunConfig& c = run.config;
  const std::optional<uint64_t> tokens = tokens_in(c.data.train);
  if (c.steps) {
    run.steps = static_cast<double>(*c.steps);
  } else if (c.epochs && tokens) {
    run.steps = std::ceil(*c.epochs * static_cast<double>(*tokens) / run.tokens_per_step());
  }
  plan_pauses(run);
  if (tokens) run.epoch_hours = static_cast<double>(*tokens) / run.tokens_per_step() * run.seconds_per_step() / 3600;
  if (run.steps) run.run_hours = *run.steps * run.seconds_per_step() / 3600;
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
  if (run.steps) totals.disk_written = *run.steps * run.disk_written();
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
  return ranks_here * (bytes(plan.simulation, Lane::disk_weights) + bytes(plan.simulation, Lane::disk_state));
}
double PlannedRun::disk_written() const {
  return static_cast<double>(ranks_here * (bytes(plan.simulation, Lane::disk_write_weights) + bytes(plan.simulation, Lane::disk_write_state))) +
         commits_per_step * pauses.commit_bytes;
}
double PlannedRun::seconds_per_step() const {
  return plan.simulation.step_seconds + commits_per_step * pauses.commit_seconds + evaluations_per_step * pauses.eval_seconds;
}

double PlannedRun::written_per_day() const {
  return disk_written() / seconds_per_step() * kDay;
}

std::optional<double> PlannedRun::days_of_drive() const {
  if (!config.storage.tbw || disk_written() == 0) return {};
  return static_cast<double>(*config.storage.tbw) / written_per_day();
}

// Computation grows with the tokens of a step, and so do copies of block inputs that wait on the host; nothing else does.
std::optional<double> PlannedRun::device_limit_tokens() const {
  using offload::Resource;
  const double compute = seconds_of(plan.simulation.bounds, Resource::compute);
  if (compute <= 0) return {};
  offload::LaneAmounts boundaries{};
  for (const offload::Op& op : plan.plan.ops)
    if (op.kind == offload::OpKind::save_boundary || op.kind == offload::OpKind::load_boundary)
      boundaries[static_cast<size_t>(op.lane)] += static_cast<double>(op.bytes);
  const std::vector<offload::Bound> growing = offload::bounds(machine, boundaries);
  double most = 0;
  for (const offload::Bound& b : plan.simulation.bounds) {
    if (b.resource == Resource::compute || b.resource == Resource::cores) continue;
    const double grows = seconds_of(growing, b.resource);
    if (grows >= compute) return std::numeric_limits<double>::infinity();
    most = std::max(most, (b.seconds - grows) / (compute - grows));
  }
  if (most <= 0) return {};
  return tokens_per_step() * most;
}

// With deferred updates a step is committed in the forward of the next one.
std::optional<double> PlannedRun::steps_at_risk() const {
  const offload::Placement overlap = *config.execution.overlap;
  const offload::Durable durable = *config.storage.durable;
  if (durable == offload::Durable::step) return overlap == offload::Placement::forward || overlap == offload::Placement::spread ? 2 : 1;
  if (durable == offload::Durable::none || config.checkpoint.every == 0) return steps;
  const auto every = static_cast<double>(config.checkpoint.every);
  return steps ? std::min(*steps, every) : every;
}

std::optional<double> PlannedRun::hidden_communication() const {
  const double busy = plan.simulation.busy[static_cast<size_t>(Lane::comm)];
  if (busy <= 0) return {};
  return std::clamp(1 - plan.simulation.exposed / busy, 0.0, 1.0);
}

// m and v of a new store are holes.
FirstStep PlannedRun::first_step() const {
  const offload::Schema schema = plan.layout->schema();
  uint64_t trainable = 0;
  for (const offload::BlockPlace& block : plan.layout->blocks()) trainable += block.trainable;
  const auto ranks = static_cast<double>(plan.layout->world());
  const double weights = static_cast<double>(plan.layout->parameters() * offload::weight_bytes(schema)) / ranks,
               master = static_cast<double>(trainable * offload::master_bytes(schema)) / ranks;
  const auto over = [](double bytes, double rate) { return rate > 0 ? bytes / rate : 0; };
  return {over(weights, machine.disk_read), over(weights + master, machine.disk_write), over(static_cast<double>(plan.load_bytes), machine.disk_read),
          plan.simulation.first_seconds};
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
  run.ranks_here = run.config.run.world / request.nodes;
  run.model = run.config.model.path.empty() ? run.config.model.sizes.is_string()
                                                  ? run.config.model.sizes.get<std::string>()
                                                  : run.config.model.family
                                            : run.config.model.path.string();
  engine::RunPlanOptions options = run_plan_options(run.config, model, run.machine);
  options.spans = request.spans;
  options.memory_only = request.memory_only || (request.machine.empty() && needs_unknown_disk(run));
  options.trainer.guess_limit = request.guess_limit;
  options.evaluates = evaluates(run.config);
  run.plan = engine::plan_run(options);
  run.memory.rows = run.plan.memory;
  run.memory.disk_have = request.machine.empty() ? disk_available(run.config, run.need("disk")) : machine.disk_bytes;
  if (!run.timed()) return run;
  plan_length(run);
  plan_goals(run);
  return run;
}

}  // namespace sluice::apps
