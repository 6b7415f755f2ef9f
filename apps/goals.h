// What the config asks a run to keep to, beside what a run comes to: planned, forecast while it is at work, or measured.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/run_metrics.h"
#include "apps/run_schedule.h"
#include "configs/run_config.h"

namespace sluice::apps {

struct Goal {
  std::string key;  // "goals.max_hours"
  double limit = 0;
  std::optional<double> value;  // none: not known, `note` says why
  std::string note;
  bool missed() const { return value && *value > limit; }
};

// A whole run, as far as it is known. Hours: of steps, evaluations, and commits of the state in memory.
struct RunTotals {
  std::optional<double> hours, step_seconds, disk_written, eval_loss;
};

// What each of them takes; 0: unknown.
struct Pauses {
  double eval_seconds = 0, commit_seconds = 0, commit_bytes = 0;
};

// One for each goal of the config. The notes say why there are no hours, and no evaluation loss.
std::vector<Goal> compare_goals(const configs::GoalOptions& goals, const RunTotals& run, const std::string& no_length,
                                const std::string& no_loss);

std::string goal_line(const Goal& goal);                          // "goals.max_hours met: 9.1 h, limit 10 h"
// {"max_hours": {"limit", name, "met"}}; name: "predicted" or "measured". What is not known is null.
nlohmann::ordered_json goals_json(const std::vector<Goal>& goals, const char* name);

// Compares the goals with a run at work. Steps of earlier starts of the run count. Not thread-safe.
class GoalWatch {
 public:
  GoalWatch(const configs::GoalOptions& goals, const RunSchedule& schedule) : goals_(goals), schedule_(schedule) {}

  // Until the first one tells.
  void expect(const Pauses& pauses) { expected_ = pauses; }
  void resume(const RunMetrics& before);
  void step(uint64_t number, double seconds, double disk_written);
  void evaluation(uint64_t step, double loss, double seconds);
  void commit(uint64_t step, double seconds, double bytes);

  // At the end of the run, if the rest of it goes as the last steps did. The evaluation loss is the newest one.
  std::vector<Goal> forecast() const;
  // "goals met", "goals.max_hours will be missed: 12.3 h, limit 10 h"; empty without goals, or before anything is known.
  std::string forecast_text() const;
  // Goals that the forecast has begun to miss since the last call; the first steps, which fill pools, are not judged.
  std::vector<std::string> newly_missed();

 private:
  // After the step that is done, and of that one what is still to come.
  uint64_t evaluations_left() const;
  uint64_t commits_left() const;

  const configs::GoalOptions goals_;
  const RunSchedule schedule_;
  Pauses expected_;
  uint64_t done_ = 0, evaluated_ = 0, committed_ = 0;  // steps
  uint64_t evaluations_ = 0, commits_ = 0;             // how many
  double seconds_ = 0, written_ = 0;                   // of steps
  Pauses paused_;                                      // sums
  std::optional<double> eval_loss_;
  std::vector<double> step_seconds_;     // of all steps
  std::vector<std::string> told_;        // keys of goals that are missed
};

}  // namespace sluice::apps
