#include "apps/report_page.h"

#include <fmt/format.h>

#include <cmath>

#include "apps/goals.h"
#include "apps/report_memory.h"
#include "apps/svg_chart.h"
#include "base/units.h"
#include "configs/explain.h"
#include "offload/plan.h"

namespace sluice::apps {
namespace {

constexpr double kGiB = 1 << 30;

std::vector<double> column(const RunMetrics& metrics, const std::string& key) {
  std::vector<double> values;
  for (const StepFigures& step : metrics.steps)
    if (const auto found = step.values.find(key); found != step.values.end()) values.push_back(found->second);
  return values;
}

// key over steps, each value divided by the one of `per` (empty: by 1) and by `unit`.
Series over_steps(const RunMetrics& metrics, const std::string& name, const std::string& key, const std::string& per = "", double unit = 1) {
  Series series{name, {}};
  for (const StepFigures& step : metrics.steps) {
    const auto found = step.values.find(key), divisor = step.values.find(per);
    if (found == step.values.end() || (!per.empty() && (divisor == step.values.end() || divisor->second <= 0))) continue;
    series.points.emplace_back(static_cast<double>(step.step), found->second / (per.empty() ? 1 : divisor->second) / unit);
  }
  return series;
}

// What the device did, phase by phase.
std::vector<Series> phases(const RunMetrics& metrics) {
  std::vector<Series> series;
  for (const char* phase : {"forward", "loss", "backward", "recompute", "other", "optimizer", "collective"})
    series.push_back(over_steps(metrics, phase, std::string("phase.") + phase));
  return series;
}

std::string row(const std::string& name, const std::string& value) {
  return fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escaped(name), escaped(value));
}

std::string summary(const configs::RunConfig& config, const RunRecord& run) {
  const RunMetrics& metrics = run.metrics;
  const configs::ZeroOptions& zero = config.zero_optimization;
  const auto tier = [](const auto& chosen) { return chosen ? offload::to_string(*chosen) : "auto"; };
  std::string text = "<table>\n" + row("run", config.run.dir.string()) + row("model", config.model.path.string());
  text += row("weights, state, overlap", fmt::format("{}, {}, {}", tier(zero.offload_param.device), tier(zero.offload_optimizer.device),
                                                     tier(config.execution.overlap)));
  if (config.run.world > 1) text += row("ranks", fmt::format("{}, stage {}", config.run.world, zero.stage));
  if (!run.starts.empty()) text += row("device", run.starts.back().device);
  if (metrics.steps.empty()) return text + row("steps", "none yet") + "</table>\n";
  const std::vector<double> losses = column(metrics, "loss");
  double tokens = 0, seconds = 0;
  for (const double t : column(metrics, "tokens")) tokens += t;
  for (const double s : column(metrics, "step_seconds")) seconds += s;
  text += row("steps", fmt::format("{} of {}", metrics.steps.back().step, config.steps.value_or(0)));
  text += row("tokens", fmt::format("{:.0f} in {}", tokens, base::format_duration(seconds)));
  if (!losses.empty()) text += row("loss", fmt::format("{:.4f} to {:.4f}", losses.front(), losses.back()));
  if (!metrics.evaluations.empty())
    text += row("evaluation loss", fmt::format("{:.4f} to {:.4f}", metrics.evaluations.front().loss, metrics.evaluations.back().loss));
  return text + "</table>\n";
}

std::string figures(const RunRecord& run) {
  std::string text = "<table>\n";
  for (const Figure& figure : run_figures(run)) text += row(figure.name, figure.value);
  return text + "</table>\n";
}

std::string goals(const configs::RunConfig& config, const RunMetrics& metrics) {
  GoalWatch watch(config.goals, run_schedule(config));
  watch.resume(metrics);
  const std::vector<Goal> all = watch.forecast();
  if (all.empty()) return "";
  std::string text = "<h2>Goals</h2>\n<table>\n";
  for (const Goal& goal : all) text += fmt::format("<tr><td>{}</td></tr>\n", escaped(goal_line(goal)));
  return text + "</table>\n";
}

std::vector<Series> stalls(const RunMetrics& metrics) {
  std::vector<Series> series;
  for (size_t lane = 0; lane < offload::kLanes; ++lane) {
    const auto which = static_cast<offload::Lane>(lane);
    const std::string name = which == offload::Lane::compute ? "itself" : offload::to_string(which);
    Series one = over_steps(metrics, "waits for " + name, "stall." + name, "step_seconds", 0.01);
    if (!one.points.empty()) series.push_back(std::move(one));
  }
  return series;
}

std::string charts(const RunMetrics& metrics) {
  Series evaluations{"evaluation", {}, true};
  for (const EvalFigures& e : metrics.evaluations) evaluations.points.emplace_back(static_cast<double>(e.step), e.loss);
  const auto chart = [](const std::string& title, const std::string& y, bool zero, const std::vector<Series>& series) {
    return svg_chart({.title = title, .x = "step", .y = y, .from_zero = zero}, series);
  };
  return chart("Loss", "", false, {over_steps(metrics, "training", "loss"), evaluations}) +
         chart("Gradient norm", "", true, {over_steps(metrics, "norm before clipping", "grad_norm")}) +
         chart("Learning rate", "", true, {over_steps(metrics, "lr", "lr")}) +
         chart("Step time", "s", true, {over_steps(metrics, "measured", "step_seconds"), over_steps(metrics, "predicted", "predicted_seconds")}) +
         chart("Phases of a step", "s", true, phases(metrics)) + chart("Compute stands still", "%", true, stalls(metrics)) +
         chart("Bandwidth over the whole step", "GB/s", true,
               {over_steps(metrics, "disk read", "bytes.disk_read", "step_seconds", 1e9), over_steps(metrics, "disk write", "bytes.disk_write", "step_seconds", 1e9),
                over_steps(metrics, "to the device", "bytes.h2d", "step_seconds", 1e9), over_steps(metrics, "from the device", "bytes.d2h", "step_seconds", 1e9)}) +
         chart("Memory", "GiB", true,
               {over_steps(metrics, "device, peak", "memory.gpu_peak", "", kGiB), over_steps(metrics, "host budget, peak", "memory.host_peak", "", kGiB),
                over_steps(metrics, "process", "memory.resident", "", kGiB)});
}

std::string events(const RunMetrics& metrics) {
  if (metrics.events.empty()) return "<p>No events.</p>\n";
  std::string text = "<table>\n<tr><th>step</th><th>what</th><th></th></tr>\n";
  for (const StoredEvent& e : metrics.events)
    text += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", e.step, escaped(e.kind), escaped(e.text));
  return text + "</table>\n";
}

std::string settings(const configs::RunConfig& config) {
  std::string text = "<details><summary>All settings</summary>\n<table>\n";
  for (const configs::Explained& e : configs::explain(config))
    text += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td></tr>\n", escaped(e.key), escaped(e.value), escaped(e.origin));
  return text + "</table>\n</details>\n";
}

}  // namespace

std::string report_page(const configs::RunConfig& config, const RunRecord& run) {
  const RunMetrics& metrics = run.metrics;
  const std::string title = "sluice: " + config.run.dir.filename().string();
  return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + escaped(title) +
         "</title>\n<style>body{font-family:sans-serif;max-width:800px;margin:2em auto;padding:0 1em;color:#222}"
         "table{border-collapse:collapse;font-size:14px}th{text-align:left;font-weight:normal;color:#555;padding:2px 16px 2px 0;vertical-align:top}"
         "td{padding:2px 16px 2px 0;overflow-wrap:anywhere}svg{max-width:100%;height:auto;display:block;margin:1em 0}</style></head>\n<body>\n<h1>" +
         escaped(title) + "</h1>\n" + summary(config, run) + goals(config, metrics) + charts(metrics) + "<h2>Figures</h2>\n" + figures(run) +
         memory_section(run) + "<h2>Events</h2>\n" + events(metrics) + settings(config) +
         "</body></html>\n";
}

}  // namespace sluice::apps
