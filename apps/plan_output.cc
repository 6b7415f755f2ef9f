#include "apps/plan_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/amounts.h"
#include "apps/memory_report.h"
#include "apps/run_memory.h"
#include "base/units.h"

namespace sluice::apps {

using Json = nlohmann::ordered_json;
using offload::Lane;
using offload::Simulation;

namespace {

std::string count(double number) {
  if (number >= 1e9) return fmt::format("{:.3g}G", number / 1e9);
  return number >= 1e4 ? fmt::format("{:.0f}k", number / 1e3) : fmt::format("{:.0f}", number);
}

// What people call a lane.
const char* title(Lane lane) {
  constexpr const char* names[] = {"weights reads", "state reads", "weights writes",
                                   "state writes",  "copies in",   "copies out",
                                   "communication", "compute",     "optimizer",
                                   "commit"};
  static_assert(std::size(names) == offload::kLanes);
  return names[static_cast<size_t>(lane)];
}

// Commits keep no resource at work.
std::string bound_text(const PlannedRun& run) {
  const Simulation& s = run.plan.simulation;
  const offload::Bound& most = s.bounds.at(0);
  const bool commit = most.resource == offload::Resource::commit;
  return fmt::format("{}: {} {} the step ({:.0f} %)", commit ? "waiting for commits to be durable" : bottleneck(run),
                     base::format_duration(most.seconds), commit ? "of" : "of work in", 100 * most.seconds / s.step_seconds);
}

std::string busy_text(const Simulation& s) {
  std::string text;
  for (size_t l = 0; l < offload::kLanes; ++l)
    if (s.busy[l] > 0)
      text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", title(static_cast<Lane>(l)),
                          100 * s.busy[l] / s.step_seconds);
  return text;
}

// Causes of more than a hundredth of the step, the longest first.
std::string stall_text(const Simulation& s) {
  std::vector<std::pair<double, Lane>> causes;
  for (size_t l = 0; l < offload::kLanes; ++l)
    if (s.stall_by_cause[l] > s.step_seconds / 100)
      causes.emplace_back(s.stall_by_cause[l], static_cast<Lane>(l));
  std::sort(causes.rbegin(), causes.rend());
  std::string text = fmt::format("{} of compute", base::format_duration(s.compute_stall));
  for (size_t i = 0; i < causes.size(); ++i)
    text += fmt::format("{}{} {}", i == 0 ? ": " : ", ", title(causes[i].second),
                        base::format_duration(causes[i].first));
  return text;
}

std::string row(const char* name, const std::string& text) {
  return fmt::format("{:<16} {}\n", name, text);
}

std::string drive_text(const PlannedRun& run) {
  if (run.disk_written() == 0) return "nothing is written during a step";
  std::string text = fmt::format("{} written a step{}, {} a day", decimal_bytes(run.disk_written()),
                                 run.commits_per_step > 0 ? " with its share of the commits" : "", decimal_bytes(run.written_per_day()));
  if (const auto days = run.days_of_drive())
    return text + fmt::format("; rated {}: {} days of drive life",
                              decimal_bytes(static_cast<double>(*run.config.storage.tbw)), count(*days));
  return text + "; storage.tbw would say how long the drives last";
}

// "every 100 steps", "at the end".
std::string how_often(const PlannedRun& run, double per_step) {
  if (run.steps && per_step * *run.steps < 1.5) return "once";
  return per_step > 0 ? fmt::format("every {} steps", count(1 / per_step)) : "at the end";
}

// What training stands still for.
std::string pauses_text(const PlannedRun& run) {
  std::string text;
  if (run.pauses.commit_seconds > 0)
    text = row("commits", fmt::format("of the state in memory, {}: {} written and {} each", how_often(run, run.commits_per_step),
                                      decimal_bytes(run.pauses.commit_bytes), base::format_duration(run.pauses.commit_seconds)));
  if (run.evaluations_per_step > 0)
    text += row("evaluations", fmt::format("{}: {} each", how_often(run, run.evaluations_per_step), base::format_duration(run.pauses.eval_seconds)));
  return text;
}

std::string first_step_text(const FirstStep& f) {
  const auto took = [](double seconds) { return base::format_duration(seconds); };
  return fmt::format("after {}, by the disk's rates: reading the model {}, making the store {}, loading from it what stays in memory {}, the step {}; "
                     "after {} when resumed",
                     took(f.fresh()), took(f.read_model), took(f.make_store), took(f.load_memory), took(f.step), took(f.resumed()));
}

std::string length_text(const PlannedRun& run) {
  std::string text;
  if (run.epoch_hours) text = fmt::format("an epoch takes {}", base::format_duration(*run.epoch_hours * 3600));
  if (run.run_hours)
    text += fmt::format("{}{:.0f} steps take {}", text.empty() ? "" : "; ", *run.steps, base::format_duration(*run.run_hours * 3600));
  return text;
}

std::string crash_text(const PlannedRun& run) {
  const std::optional<double> steps = run.steps_at_risk();
  if (!steps) return "loses all that was trained so far";
  return fmt::format("loses {} at most{}, about {}", *steps == 1 ? "1 step" : fmt::format("{:.0f} steps", *steps),
                     run.steps == steps ? " (the whole run)" : "", base::format_duration(*steps * run.seconds_per_step()));
}

std::string goals_text(const PlannedRun& run) {
  std::string text;
  for (const Goal& goal : run.goals) text += goal_line(goal) + "\n";
  return text;
}

template <class T>
Json known(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json memory_json(const PlannedRun& run, const char* place) {
  Json rows = Json::array();
  for (const auto& r : run.memory.rows)
    if (r.place == place)
      rows.push_back({{"purpose", r.purpose}, {"bytes", r.bytes}, {"known", how_known(r)}});
  const uint64_t have = run.have(place);
  return {{"need", run.need(place)}, {"have", have == 0 ? Json(nullptr) : Json(have)}, {"rows", rows}};
}

Json lanes_json(const std::array<double, offload::kLanes>& values, double unit) {
  Json object = Json::object();
  for (size_t l = 0; l < offload::kLanes; ++l)
    if (values[l] > 0) object[offload::to_string(static_cast<Lane>(l))] = values[l] / unit;
  return object;
}

Json simulation_json(const PlannedRun& run) {
  const Simulation& s = run.plan.simulation;
  Json bounds = Json::object(), stall = lanes_json(s.stall_by_cause, 1);
  for (const offload::Bound& b : s.bounds) bounds[offload::to_string(b.resource)] = b.seconds;
  stall["compute"] = s.compute_stall;
  return {{"bounds", bounds},
          {"busy", lanes_json(s.busy, s.step_seconds)},
          {"stall", stall},
          {"waited_for", lanes_json(s.stall_by_lane, 1)}};
}

// Of rank 0.
std::string ranks_text(const PlannedRun& run) {
  const Simulation& s = run.plan.simulation;
  return fmt::format("{}, stage {}; {} received by each a step, {} of communication, {:.0f} % of it behind computation", run.config.run.world,
                     run.config.zero_optimization.stage, decimal_bytes(static_cast<double>(s.bytes[static_cast<size_t>(Lane::comm)])),
                     base::format_duration(s.busy[static_cast<size_t>(Lane::comm)]), 100 * run.hidden_communication().value_or(1));
}

// The same names as of a run whose step was simulated.
Json memory_only_json(const PlannedRun& run) {
  Json document{{"model", run.model},
                {"parameters", run.plan.layout->parameters()},
                {"machine", {{"name", run.machine.name}, {"assumed", run.machine.assumed}}},
                {"overlap", offload::to_string(*run.config.execution.overlap)},
                {"fits", run.fits()},
                {"tokens_per_step", run.tokens_per_step()},
                {"memory", {{"gpu", memory_json(run, "gpu")}, {"host", memory_json(run, "host")}, {"disk", memory_json(run, "disk")}}}};
  for (const char* unknown : {"step_seconds", "tokens_per_second", "bottleneck", "bytes_per_step"}) document[unknown] = nullptr;
  return document;
}

}  // namespace

std::string bottleneck(const PlannedRun& run) {
  const Simulation& s = run.plan.simulation;
  return s.bounds.empty() ? "" : offload::to_string(s.bounds[0].resource);
}

std::string machine_text(const offload::Machine& machine) {
  const std::string known = machine.assumed ? "assumed rates" : machine.known;
  return machine.name + (known.empty() ? "" : " (" + known + ")");
}

std::string plan_text(const PlannedRun& run) {
  const Simulation& s = run.plan.simulation;
  const auto copied = [&](Lane l) { return decimal_bytes(static_cast<double>(s.bytes[static_cast<size_t>(l)])); };
  std::string text = fmt::format("{} on {}\n{}\n\n", run.model, machine_text(run.machine),
                                 memory_report(run.config, *run.plan.layout, run.memory));
  if (!run.timed())
    return text + row("step", "not known, as the drive is too full to be measured; neither are times, bytes and goals. --machine FILE names a profile");
  text += row("step", fmt::format("{}, {} tokens, {:.1f} tokens/s", base::format_duration(s.step_seconds),
                                  count(run.tokens_per_step()), run.tokens_per_second()));
  if (!s.bounds.empty()) text += row("bound by", bound_text(run));
  text += row("busy", busy_text(s));
  text += row("stall", stall_text(s));
  text += row("bytes per step", fmt::format("disk {} read, {} written{}; copies {} in, {} out{}",
                                            decimal_bytes(static_cast<double>(run.disk_read())),
                                            decimal_bytes(run.disk_written()),
                                            run.ranks_here > 1 ? fmt::format(" by a machine's {} ranks", run.ranks_here) : "",
                                            copied(Lane::h2d), copied(Lane::d2h), run.config.run.world > 1 ? " of each rank" : ""));
  if (run.config.run.world > 1) text += row("ranks", ranks_text(run));
  text += pauses_text(run);
  text += row("drives", drive_text(run));
  if (const auto tokens = run.device_limit_tokens())
    text += row("device limit", std::isfinite(*tokens) ? fmt::format("from {} tokens per step on, the device is the limit", count(*tokens))
                                                       : "the device is never the limit: copies of block inputs (execution.boundaries \"host\") "
                                                         "take longer than it computes, however many tokens a step has");
  text += row("first step", first_step_text(run.first_step()));
  if (run.epoch_hours || run.run_hours) text += row("time", length_text(run));
  text += row("a crash", crash_text(run));
  if (run.plan.simulated)
    text +=
        row("note",
            fmt::format("simulated with tiles of {} Mi parameters instead of {}; rows by tile are estimated",
                        run.plan.simulated->tile_elements() >> 20,
                        static_cast<double>(run.plan.layout->tile_elements()) / (1 << 20)));
  return text + goals_text(run);
}

Json plan_json(const PlannedRun& run) {
  if (!run.timed()) return memory_only_json(run);
  const Simulation& s = run.plan.simulation;
  const auto bytes = [&](Lane l) { return s.bytes[static_cast<size_t>(l)]; };
  Json document{{"model", run.model},
                {"parameters", run.plan.layout->parameters()},
                {"machine", {{"name", run.machine.name}, {"assumed", run.machine.assumed}, {"known", run.machine.known}}},
                {"overlap", offload::to_string(*run.config.execution.overlap)},
                {"fits", run.fits()},
                {"step_seconds", s.step_seconds},
                {"tokens_per_step", run.tokens_per_step()},
                {"tokens_per_second", run.tokens_per_second()},
                {"bottleneck", bottleneck(run)},
                {"memory",
                 {{"gpu", memory_json(run, "gpu")},
                  {"host", memory_json(run, "host")},
                  {"disk", memory_json(run, "disk")}}},
                {"bytes_per_step",
                 {{"disk_read", run.disk_read()},
                  {"disk_write", run.disk_written()},
                  {"h2d", bytes(Lane::h2d)},
                  {"d2h", bytes(Lane::d2h)},
                  {"net", bytes(Lane::comm)}}},
                {"world", run.config.run.world}};
  document.update(simulation_json(run));
  if (const auto hidden = run.hidden_communication())
    document["communication"] = {{"seconds", s.busy[static_cast<size_t>(Lane::comm)]}, {"hidden", *hidden}};
  document["commits"] = {{"per_step", run.commits_per_step}, {"bytes", run.pauses.commit_bytes}, {"seconds", run.pauses.commit_seconds}};
  document["evaluations"] = {{"per_step", run.evaluations_per_step}, {"seconds", run.pauses.eval_seconds}};
  document["drive"] = {{"written_per_day", run.written_per_day()},
                       {"days_of_life", known(run.days_of_drive())}};
  document["device_limit_tokens"] = known(run.device_limit_tokens());  // infinity is written as null
  const FirstStep first = run.first_step();
  document["first_step_seconds"] = first.fresh();
  document["first_step"] = {{"read_model", first.read_model}, {"make_store", first.make_store}, {"load_memory", first.load_memory},
                            {"step", first.step},             {"resumed", first.resumed()}};
  document["epoch_hours"] = known(run.epoch_hours);
  document["run_hours"] = known(run.run_hours);
  const std::optional<double> at_risk = run.steps_at_risk();
  document["crash_cost"] = crash_cost(run.config);
  document["crash_loses"] = {{"steps", known(at_risk)}, {"seconds", at_risk ? Json(*at_risk * run.seconds_per_step()) : Json(nullptr)}};
  document["goals"] = goals_json(run.goals, "predicted");
  return document;
}

}  // namespace sluice::apps
