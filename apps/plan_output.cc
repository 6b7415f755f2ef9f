#include "apps/plan_output.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/memory_report.h"
#include "base/units.h"

namespace sluice::apps {

using Json = nlohmann::ordered_json;
using offload::Lane;
using offload::Simulation;

namespace {

// "6.50 GB", decimal as drives and links are.
std::string amount(double bytes) {
  if (bytes >= 1e12) return fmt::format("{:.2f} TB", bytes / 1e12);
  return bytes >= 1e9 ? fmt::format("{:.2f} GB", bytes / 1e9) : fmt::format("{:.1f} MB", bytes / 1e6);
}

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
  std::string text =
      fmt::format("{} written a step, {} a day", amount(static_cast<double>(run.disk_written())),
                  amount(run.written_per_day()));
  if (const auto days = run.days_of_drive())
    return text + fmt::format("; rated {}: {} days of drive life",
                              amount(static_cast<double>(*run.config.storage.tbw)), count(*days));
  return text + "; storage.tbw would say how long the drives last";
}

std::string length_text(const PlannedRun& run) {
  std::string text = fmt::format("first step after {}", base::format_duration(run.first_step_seconds()));
  if (run.epoch_hours)
    text += fmt::format("; an epoch takes {}", base::format_duration(*run.epoch_hours * 3600));
  if (run.run_hours)
    text += fmt::format("; {:.0f} steps take {}", *run.steps, base::format_duration(*run.run_hours * 3600));
  return text;
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
      rows.push_back({{"purpose", r.purpose}, {"bytes", r.bytes}, {"estimated", r.estimated}});
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
                     run.config.zero_optimization.stage, amount(static_cast<double>(s.bytes[static_cast<size_t>(Lane::comm)])),
                     base::format_duration(s.busy[static_cast<size_t>(Lane::comm)]), 100 * run.hidden_communication().value_or(1));
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
  const auto copied = [&](Lane l) { return amount(static_cast<double>(s.bytes[static_cast<size_t>(l)])); };
  std::string text = fmt::format("{} on {}\n{}\n\n", run.model, machine_text(run.machine),
                                 memory_report(run.config, *run.plan.layout, run.memory));
  text += row("step", fmt::format("{}, {} tokens, {:.1f} tokens/s", base::format_duration(s.step_seconds),
                                  count(run.tokens_per_step()), run.tokens_per_second()));
  if (!s.bounds.empty())
    text += row("bound by", fmt::format("{}: {} of work in the step ({:.0f} %)", bottleneck(run),
                                        base::format_duration(s.bounds[0].seconds),
                                        100 * s.bounds[0].seconds / s.step_seconds));
  text += row("busy", busy_text(s));
  text += row("stall", stall_text(s));
  text += row("bytes per step", fmt::format("disk {} read, {} written; copies {} in, {} out",
                                            amount(static_cast<double>(run.disk_read())),
                                            amount(static_cast<double>(run.disk_written())),
                                            copied(Lane::h2d), copied(Lane::d2h)));
  if (run.config.run.world > 1) text += row("ranks", ranks_text(run));
  text += row("drives", drive_text(run));
  if (const auto tokens = run.device_limit_tokens())
    text += row("device limit",
                fmt::format("from {} tokens per step on, the device is the limit", count(*tokens)));
  text += row("time", length_text(run));
  if (run.plan.simulated)
    text +=
        row("note",
            fmt::format("simulated with tiles of {} Mi parameters instead of {}; rows by tile are estimated",
                        run.plan.simulated->tile_elements() >> 20,
                        static_cast<double>(run.plan.layout->tile_elements()) / (1 << 20)));
  return text + goals_text(run);
}

Json plan_json(const PlannedRun& run) {
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
  document["drive"] = {{"written_per_day", run.written_per_day()},
                       {"days_of_life", known(run.days_of_drive())}};
  document["device_limit_tokens"] = known(run.device_limit_tokens());
  document["first_step_seconds"] = run.first_step_seconds();
  document["epoch_hours"] = known(run.epoch_hours);
  document["run_hours"] = known(run.run_hours);
  document["crash_cost"] = crash_cost(run.config);
  document["goals"] = goals_json(run.goals, "predicted");
  return document;
}

}  // namespace sluice::apps
