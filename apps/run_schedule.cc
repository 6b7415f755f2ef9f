#include "apps/run_schedule.h"

namespace sluice::apps {

uint64_t RunSchedule::evaluations_after(uint64_t step) const {
  if (eval_every == 0 || step >= steps) return 0;
  return steps / eval_every - step / eval_every;
}

uint64_t RunSchedule::commits_after(uint64_t step) const {
  if (!commits_memory || step >= steps) return 0;
  if (commit_every == 0) return 1;
  return steps / commit_every - step / commit_every + (steps % commit_every != 0 ? 1 : 0);
}

RunSchedule run_schedule(const configs::RunConfig& config) {
  RunSchedule schedule;
  schedule.steps = config.steps.value_or(0);
  if (!config.data.eval.empty()) schedule.eval_every = config.run.eval_every;
  schedule.commits_memory = config.storage.durable != offload::Durable::step && !config.machine.compute;  // timing only commits nothing
  schedule.commit_every = config.checkpoint.every;
  return schedule;
}

}  // namespace sluice::apps
