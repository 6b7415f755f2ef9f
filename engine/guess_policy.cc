#include "engine/guess_policy.h"

#include <algorithm>

namespace sluice::engine {

void GuessPolicy::add(bool failed) {
  failed_.push_back(failed);
  if (failed_.size() > kWindow) failed_.pop_front();
  if (failed_.size() < kLeast) return;
  const double rate = static_cast<double>(std::count(failed_.begin(), failed_.end(), true)) / static_cast<double>(failed_.size());
  // Back only when it is clearly worth it: each change costs a pause.
  guess_ = guess_ ? rate <= limit_ : rate < limit_ / 2;
}

}  // namespace sluice::engine
