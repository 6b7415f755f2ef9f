// sluice train: one command that starts a run, or with --resume goes on with it.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "apps/command.h"
#include "apps/fitting_trainer.h"
#include "apps/logging.h"
#include "apps/memory_report.h"
#include "apps/output_file.h"
#include "apps/plan_output.h"
#include "apps/planned_run.h"
#include "apps/rank_session.h"
#include "apps/ranks.h"
#include "apps/resident_choice.h"
#include "apps/run_dir.h"
#include "apps/run_figures.h"
#include "apps/run_machine.h"
#include "apps/run_memory.h"
#include "apps/run_recorder.h"
#include "apps/run_starts.h"
#include "apps/schedule_choice.h"
#include "apps/schedule_output.h"
#include "apps/shadow_choice.h"
#include "apps/training_options.h"
#include "base/error.h"
#include "base/trace.h"
#include "base/units.h"
#include "configs/explain.h"
#include "engine/run_shape.h"

namespace sluice::apps {
namespace {

using base::ErrorKind;

struct Options : MachineOptions {
  std::string resume, trace;
  bool allow_change = false;
  int nproc = 0;  // not given
};

// Settings that change bits must be those of the run; others may change freely.
void check_same_numbers(const RunDir& run, const configs::RunConfig& stored, const configs::RunConfig& now, bool allow) {
  auto differences = configs::compare_numeric_settings(stored, now);
  // With other ranks the bits differ anyway, and each rank's share of the cores is another one.
  if (stored.run.world != now.run.world && configs::origin_of(now, "machine.compute_threads").kind == configs::Origin::Kind::chosen)
    std::erase_if(differences, [](const configs::Difference& d) { return d.key == "machine.compute_threads"; });
  if (differences.empty()) return;
  std::string list;
  for (const auto& d : differences) list += fmt::format("\n  {}: the run has {}, the config {}", d.key, d.stored, d.now);
  if (!allow)
    base::fail(ErrorKind::config, "the config changes numeric settings of the run in {}:{}\nSet them back, or pass --allow-change to go "
               "on with results that differ from an uninterrupted run", run.path().string(), list);
  spdlog::warn("numeric settings changed; later steps differ from an uninterrupted run:{}", list);
}

// A run may go on with another learning rate, or in other places: nothing is wrong, but whoever did not mean it should see it.
void note_changes(const configs::RunConfig& stored, const configs::RunConfig& now) {
  std::string list;
  for (const auto& d : configs::compare_free_settings(stored, with_absolute_paths(now)))
    if (d.key != "model.path") list += fmt::format("\n  {}: {} -> {}", d.key, d.stored, d.now);
  if (!list.empty()) spdlog::info("changed since the run was last started:{}", list);
}

// Do a step's lanes have the same work as before? Then what they took before says what they should take.
bool same_lanes(const configs::RunConfig& stored, const configs::RunConfig& now) {
  constexpr const char* kSchedule[] = {"aio.", "data.sequence_length", "execution.", "gradient_accumulation_steps", "machine.", "memory.pinned", "memory.shadow",
                                       "storage.", "train_", "zero_optimization."};
  auto differences = configs::compare_numeric_settings(stored, now);
  for (auto& d : configs::compare_free_settings(stored, with_absolute_paths(now))) differences.push_back(std::move(d));
  return stored.run.world == now.run.world && std::ranges::none_of(differences, [&](const configs::Difference& d) {
           return std::ranges::any_of(kSchedule, [&](const char* key) { return d.key.starts_with(key); });
         });
}

// Only once the store has been opened: that it is the same model is for the store to say.
void note_moved_model(const configs::RunConfig& stored, const configs::RunConfig& now) {
  const auto before = std::filesystem::weakly_canonical(stored.model.path), after = std::filesystem::weakly_canonical(now.model.path);
  if (before != after)
    spdlog::warn("model.path has moved from {} to {}; it is the same model", before.string(), after.string());
}

engine::MemoryReport print_memory(const engine::Trainer& trainer, const RankSession& ranks, const configs::RunConfig& config) {
  engine::MemoryReport memory = trainer.memory();
  const uint64_t need = engine::disk_need(trainer.layout(), *config.storage.durable);
  memory.rows.push_back({"disk", "slots", need});
  memory.disk_have = disk_available(config, need);
  spdlog::info("{}", trainer.describe_device());
  if (ranks.several()) spdlog::info("{}; {} of them on this machine", ranks.transport(), ranks.on_this_host());
  if (!config.run.deterministic)
    spdlog::warn("run.deterministic is false: no two runs give the same bits, so equal results in every tier and after a resume are off");
  spdlog::info("{}", memory_report(config, trainer.layout(), memory));
  return memory;
}

nlohmann::ordered_json rank_json(const engine::Trainer& trainer) {
  uint64_t planned = 0;
  for (const auto& row : trainer.memory().rows)
    if (row.place == "gpu") planned += row.bytes;
  const comm::CommStats traffic = trainer.traffic();
  return {{"device_planned", planned},
          {"device_peak", trainer.device_memory().peak},
          {"gathered", traffic.gather_received},
          {"reduced", traffic.reduce_received},
          {"communication_seconds", traffic.seconds}};
}

// ranks: what rank_json says of each.
void print_json(const configs::RunConfig& config, const engine::RunOutcome& outcome, const std::vector<Goal>& goals,
                const std::vector<std::string>& ranks) {
  nlohmann::ordered_json document{{"run", config.run.dir.string()}, {"step", outcome.meta.step}, {"steps", *config.steps},
                                  {"samples", outcome.meta.samples}, {"tokens", outcome.meta.tokens},
                                  {"skipped", outcome.meta.skipped}, {"stopped", outcome.stopped},
                                  {"goals", goals_json(goals, outcome.stopped ? "predicted" : "measured")}};
  for (const std::string& rank : ranks) document["ranks"].push_back(nlohmann::ordered_json::parse(rank));
  fmt::print("{}\n", document.dump(2));
}

// Opens the store, or creates it; then the run's folder and log, which are the first rank's. Returns how many steps of the last start are lost.
uint64_t start(engine::Trainer& trainer, RankSession& ranks, const RunDir& run, const configs::RunConfig& config,
               const std::optional<configs::RunConfig>& stored) {
  if (!stored) {
    std::optional<NewRun> fresh;
    if (ranks.first()) fresh.emplace(run, config);
    trainer.create();
    if (!ranks.first()) return 0;
    fresh->keep();
    log_to_file(run.log_file());
    spdlog::info("created the store of {}", config.run.dir.string());
    return 0;
  }
  const offload::OpenReport report = trainer.open();
  if (!ranks.first()) return 0;
  log_to_file(run.log_file());
  for (const std::string& note : report.notes) spdlog::info("{}", note);
  note_moved_model(*stored, config);
  note_changes(*stored, config);
  const uint64_t lost = run.cut_metrics(report.meta.step);
  run.write_config(config);
  if (report.meta.step < *config.steps)
    spdlog::info("resuming {} after step {}", config.run.dir.string(), report.meta.step);
  else
    spdlog::info("{} is at step {} and steps is {}: nothing to do; a larger steps goes on", config.run.dir.string(), report.meta.step,
                 *config.steps);
  return lost;
}

// A finished run exits 0 though it missed a goal: what it trained is there, and committed. The summary says what was missed.
int finish(const configs::RunConfig& config, const engine::RunOutcome& outcome, const std::vector<Goal>& goals) {
  if (config.machine.compute) {
    spdlog::info("timed {} steps; nothing was computed or committed", outcome.meta.step);
    return outcome.stopped ? static_cast<int>(ErrorKind::interrupted) : 0;
  }
  if (outcome.stopped) {
    const bool kept = *config.storage.durable != offload::Durable::none;
    spdlog::info("stopped after step {} of {}{}; go on with --resume auto", outcome.meta.step, *config.steps,
                 kept ? ", which is committed" : "");
    return static_cast<int>(ErrorKind::interrupted);
  }
  spdlog::info("finished: {} steps, {} tokens, {} skipped. The run is in {}", outcome.meta.step, outcome.meta.tokens,
               outcome.meta.skipped, config.run.dir.string());
  std::string figures;
  const RunDir run(config.run.dir);
  for (const Figure& f : run_figures({read_metrics(run.metrics_file()), read_starts(run.starts_file()), read_run_memory(run.memory_file())}))
    figures += fmt::format("\n  {:<22} {}", f.name, f.value);
  spdlog::info("figures of the run{}", figures);
  for (const Goal& goal : goals) spdlog::log(goal.missed() ? spdlog::level::warn : spdlog::level::info, "{}", goal_line(goal));
  return 0;
}

// `more`: assignments after those of --set.
configs::RunConfig read(const Options& options, const RankSession& ranks, const std::vector<std::string>& more = {}) {
  std::vector<std::string> set = options.set;
  if (!options.resume.empty() && options.resume != "auto") set.push_back("run.dir=" + options.resume);
  set.insert(set.end(), more.begin(), more.end());
  configs::RunConfig config = configs::read_config(options.config, {.set = set, .purpose = configs::Purpose::training, .world = ranks.world()});
  choose_open_values(&config, ranks.on_this_host());
  if (!config.execution.resident_blocks) choose_resident_blocks(&config, model_of(config), device_memory(config));
  return config;
}

// What a plan says of the run, where it is known how fast the machine is. Chooses the settings that are left open.
std::optional<PlannedRun> plan_ahead(const Options& options, configs::RunConfig& config, engine::TrainerOptions& trainer, const RankSession& ranks) {
  const engine::HfConfig model = model_of(config);
  const std::optional<offload::Machine> machine = run_machine(options, config, model, ranks);
  if (!machine) return std::nullopt;
  OpenPlan open = plan_open(config, model, *machine, {.nodes = ranks.world() / ranks.on_this_host()});
  if (!open.run.timed()) return std::nullopt;
  config = open.choice.config;
  trainer = trainer_options(config);
  trainer.guess_limit = open.choice.guess_limit;
  for (const SettingChoice& s : open.choice.settings) spdlog::info("{}: {} ({})", s.key, setting_text(s.key, s.becomes), s.reason);
  spdlog::info("a step is predicted to take {:.3g} s on {}", open.run.plan.simulation.step_seconds, machine_text(*machine));
  return std::move(open.run);
}

// What the first rank decides for all: a look at this machine's free memory, or at the disk, may say something else on another one.
struct Start {
  bool exists = false;  // there is a run in run.dir
  configs::RunConfig config;
  std::optional<PlannedRun> planned;  // the first rank's
  std::optional<double> guess_limit;
};

Start decide(const Options& options, const RankSession& ranks) {
  Start start;
  start.config = read(options, ranks);
  for (const std::string& note : start.config.notes) spdlog::info("{}", note);
  const RunDir run(start.config.run.dir);
  start.exists = run.has_store();
  if (start.exists && options.resume.empty())
    base::fail(ErrorKind::config, "there is already a run in {}. Go on with it with --resume auto, or choose another run.dir",
               start.config.run.dir.string());
  if (start.exists && start.config.machine.compute)
    base::fail(ErrorKind::config, "machine.compute is timing only and would write over the run in {}; give it a run.dir of its own",
               start.config.run.dir.string());
  if (!start.exists && !options.resume.empty() && options.resume != "auto")
    base::fail(ErrorKind::config, "--resume {}: there is no run in it", options.resume);
  check_writable("--trace", options.trace);
  engine::TrainerOptions trainer = trainer_options(start.config);
  start.planned = plan_ahead(options, start.config, trainer, ranks);
  start.guess_limit = trainer.guess_limit;
  choose_shadow(&start.config, model_of(start.config), host_memory(start.config));
  return start;
}

Start decide_together(const Options& options, RankSession& ranks) {
  using Json = nlohmann::ordered_json;
  if (!ranks.several()) return decide(options, ranks);
  Start start;
  std::string text;
  if (ranks.first()) {
    start = decide(options, ranks);
    text = Json{{"exists", start.exists},
                {"config", configs::resolved_json(start.config)},
                {"guess_limit", start.guess_limit ? Json(*start.guess_limit) : Json(nullptr)}}
               .dump();
  }
  const Json shared = Json::parse(ranks.from_first(text));
  if (ranks.first()) return start;
  start.exists = shared.at("exists");
  start.config = configs::parse_config(shared.at("config").dump(), options.config);
  if (!shared.at("guess_limit").is_null()) start.guess_limit = shared.at("guess_limit").get<double>();
  return start;
}

// What a look at the run later needs to know of this start.
void record_start(RunStart& started, std::chrono::steady_clock::time_point opening, engine::Trainer& trainer, RunRecorder& recorder,
                  const RunDir& run, const RunMemory& memory, bool same_work) {
  started.open_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - opening).count();
  started.step = trainer.step();
  started.flops_per_step = trainer.flops_per_step();
  started.device = trainer.describe_device();
  started.ceilings = recorder.ceilings();
  append_start(started, run.starts_file());
  write_run_memory(memory, run.memory_file());
  recorder.open(run, trainer, same_work);
}

int train(const Options& options, RankSession& ranks) {
  if (!ranks.first()) spdlog::set_level(spdlog::level::warn);  // the first one tells
  const Start begin = decide_together(options, ranks);
  const configs::RunConfig& config = begin.config;
  const RunDir run(config.run.dir);
  std::optional<configs::RunConfig> stored;
  if (begin.exists) {
    stored = run.read_config(configs::Purpose::training);
    check_same_numbers(run, *stored, config, options.allow_change);
  }
  engine::TrainerOptions trainer_options_ = trainer_options(config);
  trainer_options_.guess_limit = begin.guess_limit;
  trainer_options_.runtime.queue.strict = trainer_options_.store.strict = options.strict;
  ranks.connect(trainer_options_);
  RunRecorder recorder(config, begin.planned, begin.guess_limit.has_value(), ranks.on_this_host());
  engine::TrainerEvents events = recorder.events();
  if (!ranks.first()) events = {.stop = events.stop};
  const Reread reread = [&](const std::vector<std::string>& set) { return read(options, ranks, set); };
  const auto made = make_trainer(trainer_options_, events, ranks.first() ? reread : Reread());
  engine::Trainer& trainer = *made;
  return ranks.guard([&] {
    RunMemory memory;
    if (ranks.first()) memory.planned = print_memory(trainer, ranks, config);
    const auto opening = std::chrono::steady_clock::now();
    RunStart started;
    started.steps_lost = start(trainer, ranks, run, config, stored);
    if (ranks.first()) record_start(started, opening, trainer, recorder, run, memory, stored && same_lanes(*stored, config));
    base::Trace trace;
    const bool traced = ranks.first() && !options.trace.empty();
    const engine::RunOutcome outcome = trainer.run(traced ? &trace : nullptr);
    const std::vector<std::string> of_ranks = ranks.from_all(rank_json(trainer).dump());
    trainer.finish();
    if (!ranks.first()) return outcome.stopped ? static_cast<int>(ErrorKind::interrupted) : 0;
    if (traced) trace.write(options.trace);
    memory.peaks = MemoryPeaks{trainer.device_memory().peak, trainer.counters().host_peak, base::read_process_memory()};
    write_run_memory(memory, run.memory_file());
    if (options.json) print_json(config, outcome, recorder.goals(), of_ranks);
    return finish(config, outcome, recorder.goals());
  });
}

int run_train(const Options& options) {
  const RankStart started = start_ranks(options.nproc);
  if (started.exit_code) return *started.exit_code;
  RankSession ranks(started.launch);
  return ranks.guard([&] { return train(options, ranks); });
}

}  // namespace

void add_train(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(app, context, "train", "Train: start a run, or go on with one", options, run_train, Workers::ranks);
  add_config_options(*command, *options)->required();
  command->add_option("--resume", options->resume,
                      "\"auto\": go on with the run in run.dir from its last committed step, or start when there is none; a folder: go "
                      "on with the run in it")
      ->type_name("auto|DIR");
  command->add_option("--trace", options->trace, "Write a Chrome trace of every operation (chrome://tracing, Perfetto)")->type_name("FILE");
  add_machine_options(*command, *options, "this machine is measured once, in a few seconds, when the run is long enough or a setting is \"auto\"");
  command->add_option("--nproc", options->nproc, "Start so many ranks on this machine, and see them through")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--allow-change", options->allow_change,
                    "Resume although numeric settings differ from the run's; its results will differ from an uninterrupted run");
}

}  // namespace sluice::apps
