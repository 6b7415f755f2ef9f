#include <cmath>

#include "base/error.h"
#include "cpu_adam/adam.h"

namespace sluice::cpu_adam {

StepGroup make_step_group(const GroupOptions& options, uint64_t step) {
  SLUICE_CHECK(step >= 1, "the first optimizer step is step 1");
  // From the integer step, not a running product of floats: a run that resumes must get the same constants.
  const auto t = static_cast<double>(step);
  const double bias1 = options.bias_correction ? 1 - std::pow(options.beta1, t) : 1;
  const double bias2 = options.bias_correction ? 1 - std::pow(options.beta2, t) : 1;
  return {
      .lr_decay = static_cast<float>(options.decoupled ? 1 - options.lr * options.weight_decay : 1),
      .l2 = static_cast<float>(options.decoupled ? 0 : options.weight_decay),
      .beta1 = static_cast<float>(options.beta1),
      .one_minus_beta1 = static_cast<float>(1 - options.beta1),
      .beta2 = static_cast<float>(options.beta2),
      .one_minus_beta2 = static_cast<float>(1 - options.beta2),
      .eps = static_cast<float>(options.eps),
      .step_size = static_cast<float>(options.lr / bias1),
      .inv_sqrt_bias2 = static_cast<float>(1 / std::sqrt(bias2)),
  };
}

}  // namespace sluice::cpu_adam
