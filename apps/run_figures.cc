#include "apps/run_figures.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/statistics.h"
#include "base/units.h"

namespace sluice::apps {
namespace {

using base::format_bytes;

// Of all steps that have it.
std::vector<double> column(const RunMetrics& metrics, const std::string& key) {
  std::vector<double> values;
  for (const StepFigures& step : metrics.steps)
    if (const auto found = step.values.find(key); found != step.values.end()) values.push_back(found->second);
  return values;
}

// A line of a table, built from the medians of several columns.
class Figures {
 public:
  explicit Figures(const RunRecord& run) : run_(run) {}

  std::vector<double> steady(const std::string& key) const {
    std::vector<double> values = column(run_.metrics, key);
    if (values.size() > 1) values.erase(values.begin());
    return values;
  }
  double median(const std::string& key) const { return base::median(steady(key)); }
  // Of what belongs to no single step: with deferred updates a step's bytes spread over two.
  double mean(const std::string& key) const {
    double all = 0;
    const std::vector<double> values = steady(key);
    for (const double v : values) all += v;
    return values.empty() ? 0 : all / static_cast<double>(values.size());
  }
  double sum(const std::string& key) const {
    double all = 0;
    for (const double v : column(run_.metrics, key)) all += v;
    return all;
  }
  bool has(const std::string& key) const { return !column(run_.metrics, key).empty(); }
  void add(const std::string& name, const std::string& value) {
    if (!value.empty()) list_.push_back({name, value});
  }
  std::vector<Figure> take() { return std::move(list_); }

  void times();
  void compute();
  void stalls();
  void links();
  void communication();
  void disk();
  void memory();
  void commits();

 private:
  const RunRecord& run_;
  std::vector<Figure> list_;
};

void Figures::times() {
  std::vector<double> seconds = steady("step_seconds");
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) { return seconds[std::min(seconds.size() - 1, static_cast<size_t>(share * static_cast<double>(seconds.size())))]; };
  add("step", fmt::format("{:.3g} s median, {:.3g} s for 95 %, {:.3g} s at most", at(0.5), at(0.95), seconds.back()));
  if (has("predicted_seconds")) {
    const double predicted = median("predicted_seconds");
    add("predicted", fmt::format("{:.3g} s; measured {:+.1f} %", predicted, 100 * (at(0.5) / predicted - 1)));
  }
  std::string phases;
  for (const char* phase : {"forward", "loss", "backward", "recompute", "other", "optimizer", "collective"})
    if (const double s = median(std::string("phase.") + phase); s > 0)
      phases += fmt::format("{}{} {:.3g} s", phases.empty() ? "" : ", ", phase == std::string("optimizer") ? "beside them the optimizer" : phase == std::string("collective") ? "collectives" : phase, s);
  add("made of", phases);
}

void Figures::compute() {
  add("tokens per second", fmt::format("{:.4g}", median("tokens_per_s")));
  if (!has("flops.per_s")) return;
  const double rate = median("flops.per_s"), used = median("flops.utilization");
  add("model FLOP per second", fmt::format("{:.4g} T{}", rate / 1e12, used > 0 ? fmt::format(", {:.0f} % of what this machine was measured to reach", 100 * used) : ""));
}

void Figures::stalls() {
  std::string causes;
  for (const char* lane : {"disk_weights", "disk_state", "disk_write_weights", "disk_write_state", "h2d", "d2h", "comm", "itself", "update", "commit"}) {
    const std::string key = std::string("stall.") + lane;
    if (!has(key)) continue;
    if (const double share = sum(key) / std::max(1e-12, sum("step_seconds")); share >= 0.001) causes += fmt::format(", {} {:.1f} %", lane, 100 * share);
  }
  add("compute stands still", fmt::format("{:.1f} % of the time{}", 100 * sum("stall.compute") / std::max(1e-12, sum("step_seconds")),
                                          causes.empty() ? "" : "; waits for" + causes.substr(1)));
  if (has("overlap.efficiency"))
    add("overlap", fmt::format("{:.0f} % of what could be hidden is; {:.0f} % of the operations found their data there", 100 * median("overlap.efficiency"),
                               100 * median("overlap.prefetch_hits")));
}

void Figures::links() {
  const Ceilings ceilings = run_.starts.empty() ? Ceilings{} : run_.starts.back().ceilings.value_or(Ceilings{});
  const std::pair<const char*, double> all[] = {
      {"disk_read", ceilings.disk_read}, {"disk_write", ceilings.disk_write}, {"h2d", ceilings.h2d}, {"d2h", ceilings.d2h}};
  for (const auto& [link, ceiling] : all) {
    const std::string name = link;
    const double bytes = mean("bytes." + name);
    if (bytes <= 0) continue;
    std::string text = format_bytes(static_cast<uint64_t>(bytes)) + " a step";
    if (has("bytes_over_plan." + name)) text += fmt::format(", {:.3g} times the plan's", mean("bytes_over_plan." + name));
    if (const double rate = median("bandwidth." + name); rate > 0) {
      text += fmt::format("; {:.3g} GB/s while at work", rate / 1e9);
      if (ceiling > 0) text += fmt::format(", {:.0f} % of the measured {:.3g}", 100 * rate / ceiling, ceiling / 1e9);
    }
    add(name, text);
  }
}

// Of a rank. The share is weighed by the seconds it is of.
void Figures::communication() {
  if (!has("communication.seconds")) return;
  double hidden = 0;
  for (const StepFigures& step : run_.metrics.steps)
    if (const auto seconds = step.values.find("communication.seconds"); seconds != step.values.end())
      hidden += seconds->second * step.values.at("communication.hidden");
  const double seconds = sum("communication.seconds");
  add("communication", fmt::format("{} received a step by the first rank, {:.3g} s in collectives, {:.0f} % of them hidden by compute",
                                   format_bytes(static_cast<uint64_t>(mean("bytes.net"))), mean("communication.seconds"), seconds > 0 ? 100 * hidden / seconds : 100));
}

void Figures::disk() {
  if (!has("disk.write_p99")) return;
  add("disk requests", fmt::format("depth {:.1f} and {:.1f}; 99 % within {:.0f} and {:.0f} ms (reads, writes); {:.0f} short, {:.0f} retried, {:.0f} failed",
                                   median("disk.read_depth"), median("disk.write_depth"), 1e3 * median("disk.read_p99"), 1e3 * median("disk.write_p99"),
                                   sum("disk.short"), sum("disk.retries"), sum("disk.failures")));
  double commits = 0;
  for (const CommitFigures& c : run_.metrics.commits) commits += c.bytes;
  double written = commits;
  for (const StepFigures& step : run_.metrics.steps) written += step.written();
  add("written to disk",
      fmt::format("{} in all{}, {} a token", format_bytes(static_cast<uint64_t>(written)),
                  commits > 0 ? fmt::format(", {} of it by commits of the state in memory", format_bytes(static_cast<uint64_t>(commits))) : "",
                  format_bytes(static_cast<uint64_t>(written / std::max(1.0, sum("tokens"))))));
}

void Figures::memory() {
  if (!has("memory.resident")) return;
  const StepFigures& last = run_.metrics.steps.back();
  const auto newest = [&](const char* key) {
    const auto found = last.values.find(std::string("memory.") + key);
    return found == last.values.end() ? 0 : static_cast<uint64_t>(found->second);
  };
  std::string text = format_bytes(newest("gpu_peak"));
  if (run_.memory) {
    const double planned = static_cast<double>(run_.memory->need("gpu"));
    if (planned > 0) text += fmt::format(", {:+.1f} % of the plan's", 100 * (static_cast<double>(newest("gpu_peak")) / planned - 1));
  }
  add("device memory, peak", text + fmt::format("; temporaries {} ({} held for them)", format_bytes(newest("gpu_temporaries_peak")),
                                                format_bytes(newest("gpu_reserved_peak"))));
  add("host memory, peak", fmt::format("{} of memory.host; the process {}, {} locked; page cache of the machine {}", format_bytes(newest("host_peak")),
                                       format_bytes(newest("resident_peak")), format_bytes(newest("locked")), format_bytes(newest("page_cache"))));
}

void Figures::commits() {
  std::vector<double> commits, bytes;
  for (const CommitFigures& c : run_.metrics.commits) commits.push_back(c.seconds), bytes.push_back(c.bytes);
  if (!commits.empty()) {
    add("commits", fmt::format("{}; training stood still for {:.3g} s each, which wrote {}", commits.size(), base::median(commits),
                               format_bytes(static_cast<uint64_t>(base::median(bytes)))));
  } else if (const double seconds = median("commit.seconds"); seconds > 0) {
    add("commits", fmt::format("every step; {:.3g} s from the last write until it is durable", seconds));
  }
  if (run_.starts.empty()) return;
  uint64_t lost = 0;
  for (const RunStart& start : run_.starts) lost += start.steps_lost;
  add("starts", fmt::format("{}; the last one took {:.3g} s to open and load; steps lost in all: {}", run_.starts.size(),
                            run_.starts.back().open_seconds, lost));
}

}  // namespace

std::vector<Figure> run_figures(const RunRecord& run) {
  Figures figures(run);
  if (!run.metrics.steps.empty()) {
    figures.times();
    figures.compute();
    figures.stalls();
    figures.links();
    figures.communication();
    figures.disk();
    figures.memory();
    figures.add("skipped, redone", fmt::format("{:.0f} steps skipped as not finite; {:.0f} updated on a guess, {:.0f} of them redone after a wrong one",
                                               figures.sum("skipped"), figures.sum("guessed"), figures.sum("redone")));
  }
  figures.commits();
  return figures.take();
}

}  // namespace sluice::apps
