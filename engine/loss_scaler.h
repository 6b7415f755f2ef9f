// fp16's loss scale: the loss's gradient is multiplied by it, so that small gradients do not vanish; norm, clip and Adam see them
// divided by it again.
#pragma once
#include <cstdint>

#include "offload/store_record.h"

namespace sluice::engine {

// DeepSpeed's "fp16" section, by its rules (DynamicLossScaler and LossScaler of deepspeed/runtime/fp16/loss_scaler.py).
struct LossScalerOptions {
  bool enabled = false;
  double loss_scale = 0;  // fixed; 0: dynamic
  uint64_t initial_scale_power = 16;
  uint64_t loss_scale_window = 1000;  // good steps in a row that double the scale
  uint64_t hysteresis = 2;            // the overflow, counted from 1, that halves it; earlier ones only skip their step
  bool consecutive_hysteresis = false;  // every good step starts the count again; false: only one that doubles the scale
  double min_loss_scale = 1;

  bool dynamic() const { return loss_scale == 0; }
};

// Between two steps. What a commit stores of it: StepMeta.
struct LossScale {
  double scale = 1;         // of the next step
  uint64_t good_steps = 0;  // since the last overflow
  uint64_t hysteresis = 1;  // the overflow that halves the scale, counted from the next one
  bool operator==(const LossScale&) const = default;
};

// Rules alone, no state: the same decision on every rank, and after a resume.
class LossScaler {
 public:
  explicit LossScaler(const LossScalerOptions& options) : options_(options) {}

  const LossScalerOptions& options() const { return options_; }
  bool enabled() const { return options_.enabled; }
  LossScale initial() const;
  // Of a run that goes on; under other options than before a dynamic scale goes on from where it was.
  LossScale resumed(const offload::StepMeta& meta) const;
  LossScale after(LossScale step, bool overflow) const;
  // The scale is at its minimum and would fall: no smaller one can cure the overflow.
  bool exhausted(const LossScale& step) const;

 private:
  const LossScalerOptions options_;
};

void write_scale(const LossScale& scale, offload::StepMeta* meta);

}  // namespace sluice::engine
