#include "apps/largest_model.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::apps {
namespace {

constexpr int64_t kMost = 1 << 14;  // layers; larger is not asked
constexpr uint32_t kTiles = 800;    // enough for a size

class Sizes {
 public:
  Sizes(const PlannedRun& run, const engine::HfConfig& model) : run_(run), model_(model) {}

  // The parameters, when it fits.
  std::optional<uint64_t> fitting(int64_t layers) const {
    engine::HfConfig model = model_;
    model.layers = layers;
    engine::RunPlanOptions options = run_plan_options(run_.config, model, run_.machine);
    options.memory_only = true;
    options.most_tiles = kTiles;
    try {
      const engine::RunPlan plan = engine::plan_run(options);
      for (const char* place : {"gpu", "host", "disk"})
        if (run_.have(place) != 0 && engine::total(plan.memory, place) > run_.have(place)) return std::nullopt;
      return plan.layout->parameters();
    } catch (const base::Error& error) {
      if (error.kind() == base::ErrorKind::bug) throw;
      return std::nullopt;  // a pool that is too small for it, say
    }
  }

 private:
  const PlannedRun& run_;
  const engine::HfConfig& model_;
};

}  // namespace

std::optional<LargestModel> largest_model(const PlannedRun& run, const engine::HfConfig& model) {
  if (run.have("gpu") == 0 && run.have("host") == 0 && run.have("disk") == 0) return std::nullopt;
  const Sizes sizes(run, model);
  int64_t fits = 0, not_fits = kMost + 1;
  uint64_t parameters = 0;
  for (int64_t n = model.layers; n >= 1 && n <= kMost; n = fits > 0 ? 2 * n : n / 2) {
    const auto found = sizes.fitting(n);
    if (!found) {
      not_fits = n;
      if (fits > 0) break;
      continue;
    }
    const bool after_a_miss = not_fits <= kMost;
    fits = n;
    parameters = *found;
    if (after_a_miss) break;
  }
  if (fits == 0) return std::nullopt;
  while (not_fits - fits > std::max<int64_t>(1, fits / 50)) {
    const int64_t middle = std::min((fits + not_fits) / 2, kMost);
    if (middle == fits) break;
    if (const auto found = sizes.fitting(middle)) {
      fits = middle;
      parameters = *found;
    } else {
      not_fits = middle;
    }
  }
  return LargestModel{fits, parameters};
}

}  // namespace sluice::apps
