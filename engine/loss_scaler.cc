#include "engine/loss_scaler.h"

#include <algorithm>
#include <cmath>

namespace sluice::engine {

LossScale LossScaler::initial() const {
  if (!options_.enabled) return {};
  if (!options_.dynamic()) return {.scale = options_.loss_scale};
  return {.scale = std::ldexp(1.0, static_cast<int>(options_.initial_scale_power)), .hysteresis = options_.hysteresis};
}

LossScale LossScaler::resumed(const offload::StepMeta& meta) const {
  if (!options_.enabled || !options_.dynamic() || meta.loss_scale == 0) return initial();
  return {.scale = std::max(meta.loss_scale, options_.min_loss_scale),
          .good_steps = meta.good_steps,
          .hysteresis = std::clamp<uint64_t>(meta.hysteresis, 1, options_.hysteresis)};
}

bool LossScaler::exhausted(const LossScale& step) const {
  return options_.dynamic() && step.hysteresis == 1 && step.scale <= options_.min_loss_scale;
}

LossScale LossScaler::after(LossScale step, bool overflow) const {
  if (!options_.enabled || !options_.dynamic()) return step;
  if (overflow) {
    step.good_steps = 0;
    if (step.hysteresis > 1) {
      --step.hysteresis;
    } else {
      step.scale = std::max(step.scale / 2, options_.min_loss_scale);
    }
    return step;
  }
  ++step.good_steps;
  const bool grows = step.good_steps % options_.loss_scale_window == 0;
  if (grows) step.scale *= 2;
  if (grows || options_.consecutive_hysteresis) step.hysteresis = options_.hysteresis;
  return step;
}

void write_scale(const LossScale& scale, offload::StepMeta* meta) {
  meta->loss_scale = scale.scale;
  meta->good_steps = scale.good_steps;
  meta->hysteresis = scale.hysteresis;
}

}  // namespace sluice::engine
