#include "apps/goals.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/amounts.h"
#include "base/statistics.h"

namespace sluice::apps {
namespace {

constexpr size_t kRecent = 15;    // steps that say how the rest will go
constexpr size_t kSettled = 4;    // steps before a forecast is taken seriously

std::string amount(const std::string& key, double value) {
  if (key == "goals.max_hours") return fmt::format("{:.4g} h", value);
  if (key == "goals.step_seconds") return fmt::format("{:.4g} s", value);
  if (key == "goals.disk_written") return decimal_bytes(value);
  return fmt::format("{:.4g}", value);
}

std::string beside_limit(const Goal& goal) {
  return fmt::format("{}, limit {}", amount(goal.key, *goal.value), amount(goal.key, goal.limit));
}

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// A sum over what was done so often, with what is left of it: like the mean so far, or as expected where there is none yet.
double whole(double sum, uint64_t times, double left, double expected) {
  return sum + left * (times > 0 ? sum / static_cast<double>(times) : expected);
}

double value_or_zero(const StepFigures& step, const char* key) {
  const auto found = step.values.find(key);
  return found == step.values.end() ? 0 : found->second;
}

}  // namespace

std::vector<Goal> compare_goals(const configs::GoalOptions& g, const RunTotals& run, const std::string& no_length,
                                const std::string& no_loss) {
  std::vector<Goal> goals;
  const auto add = [&](const char* key, std::optional<double> limit, std::optional<double> value, const std::string& note) {
    if (limit) goals.push_back({key, *limit, value, value ? "" : note});
  };
  std::optional<double> cost, most_written;
  if (run.hours && g.price_per_hour) cost = *run.hours * *g.price_per_hour;
  if (g.disk_written) most_written = static_cast<double>(*g.disk_written);
  add("goals.max_hours", g.max_hours, run.hours, no_length);
  add("goals.max_cost", g.max_cost, cost, no_length);
  add("goals.step_seconds", g.step_seconds, run.step_seconds, no_length);
  add("goals.disk_written", most_written, run.disk_written, no_length);
  add("goals.eval_loss", g.eval_loss, run.eval_loss, no_loss);
  return goals;
}

std::string goal_line(const Goal& goal) {
  if (!goal.value) return fmt::format("{} unknown: {}", goal.key, goal.note);
  return fmt::format("{} {}: {}", goal.key, goal.missed() ? "MISSED" : "met", beside_limit(goal));
}

nlohmann::ordered_json goals_json(const std::vector<Goal>& goals, const char* name) {
  using Json = nlohmann::ordered_json;
  Json document = Json::object();
  for (const Goal& goal : goals)
    document[goal.key.substr(goal.key.find('.') + 1)] = {{"limit", goal.limit},
                                                         {name, goal.value ? Json(*goal.value) : Json(nullptr)},
                                                         {"met", goal.value ? Json(!goal.missed()) : Json(nullptr)}};
  return document;
}

void GoalWatch::resume(const RunMetrics& before) {
  for (const StepFigures& s : before.steps) step(s.step, value_or_zero(s, "step_seconds"), s.written());
  for (const EvalFigures& e : before.evaluations) evaluation(e.step, e.loss, e.seconds);
  for (const CommitFigures& c : before.commits) commit(c.step, c.seconds, c.bytes > 0 ? c.bytes : expected_.commit_bytes);  // runs of before did not count them
}

void GoalWatch::step(uint64_t number, double seconds, double disk_written) {
  done_ = number;
  seconds_ += seconds;
  written_ += disk_written;
  step_seconds_.push_back(seconds);
}

void GoalWatch::evaluation(uint64_t step, double loss, double seconds) {
  ++evaluations_;
  evaluated_ = step;
  paused_.eval_seconds += seconds;
  eval_loss_ = loss;
}

void GoalWatch::commit(uint64_t step, double seconds, double bytes) {
  ++commits_;
  committed_ = step;
  paused_.commit_seconds += seconds;
  paused_.commit_bytes += bytes;
}

uint64_t GoalWatch::evaluations_left() const { return schedule_.evaluations_after(std::max(evaluated_, done_ - 1)); }
uint64_t GoalWatch::commits_left() const { return schedule_.commits_after(std::max(committed_, done_ - 1)); }

std::vector<Goal> GoalWatch::forecast() const {
  RunTotals run;
  run.eval_loss = eval_loss_;
  if (!step_seconds_.empty()) {
    const bool over = done_ >= schedule_.steps;
    const size_t recent = over ? step_seconds_.size() : std::min(kRecent, step_seconds_.size());
    const double left = over ? 0 : static_cast<double>(schedule_.steps - done_), each = static_cast<double>(step_seconds_.size());
    run.step_seconds = base::median({step_seconds_.end() - static_cast<std::ptrdiff_t>(recent), step_seconds_.end()});
    const double evaluations = static_cast<double>(evaluations_left()), commits = static_cast<double>(commits_left());
    run.hours = (seconds_ + left * *run.step_seconds + whole(paused_.eval_seconds, evaluations_, evaluations, expected_.eval_seconds) +
                 whole(paused_.commit_seconds, commits_, commits, expected_.commit_seconds)) / 3600;
    run.disk_written = written_ + left * written_ / each + whole(paused_.commit_bytes, commits_, commits, expected_.commit_bytes);
  }
  return compare_goals(goals_, run, "no step is done yet", "nothing has been evaluated yet");
}

std::string GoalWatch::forecast_text() const {
  const std::vector<Goal> goals = forecast();
  std::string missed;
  bool known = false;
  for (const Goal& goal : goals) {
    known = known || goal.value;
    // A loss that is still too high is no forecast.
    if (goal.missed())
      missed += fmt::format("{}{} {}: {}", missed.empty() ? "" : "; ", goal.key,
                            goal.key == "goals.eval_loss" && done_ < schedule_.steps ? "not reached yet" : "will be missed", beside_limit(goal));
  }
  if (!known) return "";
  return missed.empty() ? "goals met" : missed;
}

std::vector<std::string> GoalWatch::newly_missed() {
  std::vector<std::string> fresh;
  if (step_seconds_.size() < kSettled) return fresh;
  for (const Goal& goal : forecast()) {
    if (goal.key == "goals.eval_loss") continue;
    const bool told = contains(told_, goal.key);
    if (goal.missed() && !told) {
      told_.push_back(goal.key);
      fresh.push_back(fmt::format("{} will be missed: {}", goal.key, beside_limit(goal)));
    } else if (!goal.missed() && told) {
      std::erase(told_, goal.key);
    }
  }
  return fresh;
}

}  // namespace sluice::apps
