#include "engine/train_source.h"

#include "base/statistics.h"
#include "engine/step_data.h"

namespace sluice::engine {

using Clock = std::chrono::steady_clock;

namespace {
constexpr size_t kMedianOf = 15;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }
}  // namespace

TrainSource::TrainSource(const TrainerOptions& options, const Packing& data, const offload::StepMeta& start_meta,
                         const TrainerEvents& events)
    : options_(options), data_(data), events_(events), start_(start_meta), done_(start_meta) {}

void TrainSource::start(const offload::StepMeta& meta, uint64_t end, std::vector<offload::Executor*> executors) {
  start_ = done_ = meta;
  end_ = end;
  executors_ = std::move(executors);
  const std::lock_guard lock(mutex_);
  last_end_ = Clock::now();
}

// A period may be begun more than once: after a wrong guess of the one before.
bool TrainSource::begin(uint64_t period, Step& step) {
  if (period >= end_ || period >= agreed_stop_ || (options_.model.world == 1 && stop_wanted())) return false;
  step.number = period + 1;
  const uint64_t before = period - start_.step, own = uint64_t{options_.accumulation} * options_.micro_batch,
                 samples = own * options_.model.world;
  step.meta = start_;
  step.meta.step = step.number;
  step.meta.samples += (before + 1) * samples;
  step.meta.tokens += (before + 1) * samples * options_.sequence;
  // Global micro-batches in rank order: rank r has those from r * accumulation on.
  const uint64_t first = step.meta.samples - samples, mine = first + options_.plan.rank * own;
  for (uint32_t j = 0; j < options_.accumulation; ++j) {
    step.micro.push_back(
        assemble(data_, mine + uint64_t{j} * options_.micro_batch, options_.micro_batch, options_.sequence, UINT64_MAX));
    step.trained += step.micro.back().trained;
    step.micro.back().index = uint64_t{options_.plan.rank} * options_.accumulation + j;
  }
  for (uint64_t sample = first; sample < first + samples; ++sample)  // the other ranks'
    if (sample < mine || sample >= mine + own) step.trained += data_.trained(sample);
  step.tokens = samples * options_.sequence;
  step.scale = step.trained == 0 ? 0 : 1.0 / static_cast<double>(step.trained);
  step.lr = options_.lr(step.number);
  step.meta.lr = step.lr;
  number_update(step, step.number);
  return true;
}

void TrainSource::number_update(Step& step, uint64_t update) {
  cpu_adam::GroupOptions group = options_.optimizer;
  group.lr = step.lr;
  const cpu_adam::StepGroup decayed = cpu_adam::make_step_group(group, update);
  group.weight_decay = 0;
  step.groups = {decayed, cpu_adam::make_step_group(group, update)};
}

void TrainSource::end(const Step& step) {
  done_ = step.meta;
  StepReport report;
  report.step = step.number;
  report.steps = options_.steps;
  report.tokens = step.tokens;
  report.trained = step.trained;
  report.samples = step.meta.samples;
  report.loss = step.loss();
  report.lr = step.lr;
  report.grad_norm = step.grad_norm;
  report.clip = step.clip;
  if (options_.loss_scaler.enabled) report.loss_scale = step.loss_scale.scale, report.next_loss_scale = step.meta.loss_scale;
  report.skipped = step.skipped;
  report.guessed = step.guessed;
  report.redone = step.redone;
  report.timing_only = options_.emulated_compute > 0;
  report.committed = options_.store.durable == offload::Durable::step && !report.timing_only;
  {
    const std::lock_guard lock(mutex_);
    report.seconds = seconds_since(last_end_);
    last_end_ = Clock::now();
    seconds_.push_back(report.seconds);
    if (seconds_.size() > kMedianOf) seconds_.erase(seconds_.begin());
    report.eta_seconds = median_seconds() * static_cast<double>(options_.steps - step.number);
  }
  for (offload::Executor* executor : executors_) report.stats += executor->take_stats();
  if (events_.on_step) events_.on_step(report);
}

double TrainSource::median_seconds() const {
  return base::median(seconds_);
}

// A stop request lets the step finish when the rest of it, by the last steps' times, fits the grace; else it is abandoned.
void TrainSource::progress() {
  if (!stop_wanted() || executors_.empty()) return;
  const std::lock_guard lock(mutex_);
  if (stop_seen_ == Clock::time_point{}) stop_seen_ = Clock::now();
  const double rest = median_seconds() - seconds_since(last_end_);
  if (rest > options_.grace || seconds_since(stop_seen_) > options_.grace) executors_.front()->abandon();
}

}  // namespace sluice::engine
