#include "apps/run_recorder.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "apps/stop_signal.h"
#include "configs/run_config.h"

namespace sluice::apps {

namespace {

double unix_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

offload::PlannedLanes planned_lanes(const std::optional<PlannedRun>& planned) {
  if (!planned) return {};
  const offload::Simulation& s = planned->plan.simulation;
  return {s.step_seconds, s.busy, s.bytes};
}

}  // namespace

RunRecorder::RunRecorder(const configs::RunConfig& config, const std::optional<PlannedRun>& planned, bool gives_up, uint64_t ranks_here)
    : config_(config),
      watch_(planned_lanes(planned), gives_up, !planned || !planned->machine.known.empty()),
      goals_(config.goals, run_schedule(config)) {
  facts_.ranks_here = ranks_here;
  if (!planned) return;
  expected_ = planned->pauses;
  const offload::Machine& m = planned->machine;
  facts_.predicted = planned->plan.simulation.step_seconds;
  facts_.compute_rate = m.compute * static_cast<double>(config.run.world);
  ceilings_ = Ceilings{m.disk_read, m.disk_write, m.h2d, m.d2h, m.compute};
}

engine::TrainerEvents RunRecorder::events() {
  engine::TrainerEvents events;
  events.on_step = [this](const engine::StepReport& report) { step(report); };
  events.on_progress = [this](const std::string& what, uint64_t done, uint64_t total) { progress_.update(what, done, total); };
  events.on_eval = [this](uint64_t at, const engine::EvalResult& result) { evaluation(at, result); };
  events.on_commit = [this](const engine::CommitReport& report) { commit(report); };
  events.stop = &install_stop_signals();
  return events;
}

void RunRecorder::open(const RunDir& run, const engine::Trainer& trainer, bool same_lanes) {
  trainer_ = &trainer;
  facts_.planned = link_bytes(trainer.plan());
  facts_.flops = trainer.flops_per_step();
  facts_.now = trainer.counters();
  expected_.commit_bytes = static_cast<double>(facts_.ranks_here * trainer.commit_bytes());
  goals_.expect(expected_);
  if (std::filesystem::exists(run.metrics_file())) {
    const RunMetrics earlier = read_metrics(run.metrics_file());
    goals_.resume(earlier);
    watch_.resume(earlier, same_lanes);
  }
  metrics_.emplace(run.metrics_file());
  last_ = Clock::now();
}

void RunRecorder::step(const engine::StepReport& report) {
  last_ = Clock::now();
  facts_.time = unix_time();
  facts_.before = std::exchange(facts_.now, trainer_->counters());
  facts_.device = trainer_->device_memory();
  facts_.process = base::read_process_memory();
  facts_.hidden = hidden_.add(report.stats);
  metrics_->append(metrics_line(report, facts_));
  goals_.step(report.step, report.seconds, static_cast<double>(facts_.ranks_here * link_bytes(report.stats.bytes).disk_write));
  if (report.step % std::max<uint64_t>(1, config_.run.log_every) == 0 || report.step == report.steps || report.skipped) {
    const std::string forecast = goals_.forecast_text();
    spdlog::info("{}{}{}", step_line(report, facts_), forecast.empty() ? "" : "  ", forecast);
  }
  for (const RunEvent& event : watch_.step(report)) tell(event);
  for (const std::string& text : goals_.newly_missed()) tell({report.step, "goal", text});
}

// Training stands still from the last step on: deferred updates are finished first.
void RunRecorder::evaluation(uint64_t step, const engine::EvalResult& result) {
  const double seconds = std::chrono::duration<double>(Clock::now() - last_).count();
  last_ = Clock::now();
  spdlog::info("evaluation after step {}: loss {:.4f}, perplexity {:.2f} over {} tokens", step, result.loss, result.perplexity(),
               result.tokens);
  metrics_->append(nlohmann::ordered_json{{"step", step},
                                          {"time", unix_time()},
                                          {"eval_loss", result.loss},
                                          {"eval_perplexity", result.perplexity()},
                                          {"eval_seconds", seconds}}
                       .dump());
  goals_.evaluation(step, result.loss, seconds);
  for (const RunEvent& event : watch_.evaluation(step, result.loss)) tell(event);
}

// What comes after it, an evaluation or a step, does not count it again.
void RunRecorder::commit(const engine::CommitReport& report) {
  last_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(report.seconds));
  const uint64_t written = facts_.ranks_here * report.bytes;
  metrics_->append(
      nlohmann::ordered_json{{"step", report.step}, {"commit_seconds", report.seconds}, {"commit_bytes", written}}.dump());
  goals_.commit(report.step, report.seconds, static_cast<double>(written));
}

void RunRecorder::tell(const RunEvent& event) {
  spdlog::warn("{}: {}", event.kind, event.text);
  metrics_->append(event_line(event));
  if (event.kind != "drift" || config_.run.on_drift != configs::OnDrift::stop) return;
  spdlog::warn("stopping after this step: run.on_drift is \"stop\"");
  request_stop();
}

}  // namespace sluice::apps
