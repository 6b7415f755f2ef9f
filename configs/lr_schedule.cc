#include "configs/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace sluice::configs {
namespace {

uint64_t warmup_steps(const SchedulerOptions& scheduler) {
  return std::max<uint64_t>(2, scheduler.warmup_num_steps);
}

// Share of the warm-up's rise at `step` < warm-up steps.
double rise(const SchedulerOptions& scheduler, uint64_t step) {
  const auto total = static_cast<double>(warmup_steps(scheduler));
  const auto done = static_cast<double>(step);
  return scheduler.warmup_type == WarmupCurve::linear ? done / total : std::log(done + 1) / std::log(total);
}

double decay_steps(const SchedulerOptions& scheduler) {
  SLUICE_CHECK(scheduler.total_num_steps.has_value(), "the schedule's length is not known yet");
  return std::max(
      1.0, static_cast<double>(*scheduler.total_num_steps) - static_cast<double>(warmup_steps(scheduler)));
}

}  // namespace

double lr_at(const RunConfig::Scheduler& scheduler, double base_lr, uint64_t step) {
  if (scheduler.type == SchedulerType::none) return base_lr;
  const uint64_t warmup = warmup_steps(scheduler);
  if (scheduler.type == SchedulerType::warmup_cosine) {
    if (step < warmup)
      return base_lr *
             (scheduler.warmup_min_ratio + rise(scheduler, step) * (1 - scheduler.warmup_min_ratio));
    const double progress = std::min(1.0, static_cast<double>(step - warmup + 1) / decay_steps(scheduler));
    const double cosine = (1 + std::cos(std::numbers::pi * progress)) / 2;
    return base_lr * (scheduler.cos_min_ratio + (1 - scheduler.cos_min_ratio) * cosine);
  }
  const double top = scheduler.warmup_max_lr.value_or(base_lr);
  double share = 1;
  if (step < warmup) {
    share = rise(scheduler, step);
  } else if (scheduler.type == SchedulerType::warmup_decay) {
    const double length = decay_steps(scheduler);
    share =
        std::max(0.0, (static_cast<double>(*scheduler.total_num_steps) - static_cast<double>(step)) / length);
  }
  return scheduler.warmup_min_lr + (top - scheduler.warmup_min_lr) * share;
}

}  // namespace sluice::configs
