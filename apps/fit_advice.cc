#include "apps/fit_advice.h"

#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace sluice::apps {
namespace {

struct Change {
  std::string text;                                // "execution.keep_graphs = 0"
  std::function<bool(configs::RunConfig&)> apply;  // false: there is nothing to change
};

using configs::RunConfig;
using offload::Tier;

Change move(const char* key, configs::OffloadOptions configs::ZeroOptions::*what, Tier from, Tier to) {
  return {fmt::format("{} = {}", key, offload::to_string(to)), [=](RunConfig& c) {
            auto& device = (c.zero_optimization.*what).device;
            if (device != from) return false;
            device = to;
            return true;
          }};
}

// Numbers stay the same.
std::vector<Change> harmless_changes(const std::string& place) {
  constexpr const char* kWeights = "zero_optimization.offload_param.device";
  constexpr const char* kState = "zero_optimization.offload_optimizer.device";
  const auto weights = &configs::ZeroOptions::offload_param, state = &configs::ZeroOptions::offload_optimizer;
  if (place == "gpu")
    return {{"execution.resident_blocks = 0",
             [](RunConfig& c) { return std::exchange(c.execution.resident_blocks, 0).value_or(0) != 0; }},
            {"execution.keep_graphs = 0",
             [](RunConfig& c) { return std::exchange(c.execution.keep_graphs, 0).value_or(0) != 0; }},
            {"execution.keep_weights = 0",
             [](RunConfig& c) { return std::exchange(c.execution.keep_weights, 0).value_or(0) != 0; }},
            {"execution.device_slots = 1",
             [](RunConfig& c) { return std::exchange(c.execution.device_slots, 1) != 1; }},
            {"execution.boundaries = host",
             [](RunConfig& c) {
               return std::exchange(c.execution.boundaries, configs::Boundaries::host) != configs::Boundaries::host;
             }},
            move(kState, state, Tier::none, Tier::cpu),
            move(kWeights, weights, Tier::none, Tier::cpu)};
  if (place == "host")
    return {{"memory.pinned = 0",
             [](RunConfig& c) { return std::exchange(c.memory.pinned, 0).value_or(0) != 0; }},
            {"memory.shadow = 0",
             [](RunConfig& c) { return std::exchange(c.memory.shadow, 0).value_or(0) != 0; }},
            move(kState, state, Tier::cpu, Tier::nvme),
            move(kWeights, weights, Tier::cpu, Tier::nvme),
            {"execution.pools.state = 8",
             [](RunConfig& c) { return std::exchange(c.execution.pools.state, 8) != 8; }}};
  return {{"storage.durable = none", [](RunConfig& c) {
             return std::exchange(c.storage.durable, offload::Durable::none) != offload::Durable::none;
           }}};
}

// Another micro-batch, batch or sequence; only the device's memory depends on them.
std::vector<Change> other_changes(const RunConfig& config) {
  std::vector<Change> changes;
  if (config.micro_batch() > 1)
    changes.push_back({fmt::format("train_micro_batch_size_per_gpu = 1, gradient_accumulation_steps = {}",
                                   config.accumulation() * config.micro_batch()),
                       [](RunConfig& c) {
                         c.gradient_accumulation_steps = c.accumulation() * c.micro_batch();
                         c.train_micro_batch_size_per_gpu = 1;
                         return true;
                       }});
  for (uint64_t n = config.accumulation() / 2; n >= 1; n /= 2)
    changes.push_back(
        {fmt::format("gradient_accumulation_steps = {} (a smaller batch)", n), [n](RunConfig& c) {
           c.gradient_accumulation_steps = n;
           return true;
         }});
  for (uint64_t n = config.data.sequence_length / 2; n >= 128; n /= 2)
    changes.push_back({fmt::format("data.sequence_length = {}", n), [n](RunConfig& c) {
                         c.data.sequence_length = n;
                         return true;
                       }});
  return changes;
}

bool fits_now(const configs::RunConfig& config, const PlannedRun& run, const engine::HfConfig& model,
              const char* place) {
  engine::RunPlanOptions options = run_plan_options(config, model, run.machine);
  options.memory_only = true;
  try {
    return engine::total(engine::plan_run(options).memory, place) <= run.have(place);
  } catch (const base::Error&) {
    return false;  // a pair of tiers that cannot be
  }
}

// Rounded up, as people write it.
std::string size_text(uint64_t bytes) {
  using base::operator""_MiB;
  using base::operator""_GiB;
  return bytes < 8_GiB ? fmt::format("{}MiB", base::ceil_div(bytes, 1_MiB)) : fmt::format("{}GiB", base::ceil_div(bytes, 1_GiB));
}

std::string advice_for(const PlannedRun& run, const engine::HfConfig& model, const char* place) {
  const uint64_t need = run.need(place), there = run.have(place);
  const std::string text =
      fmt::format("{} needs {} and has {}: ", place, base::format_bytes(need), base::format_bytes(there));
  configs::RunConfig all = run.config;
  std::string together;
  for (const Change& change : harmless_changes(place)) {
    configs::RunConfig one = run.config;
    if (change.apply(one) && fits_now(one, run, model, place)) return text + change.text + " would fit";
    if (!change.apply(all)) continue;
    together += (together.empty() ? "" : ", ") + change.text;
    if (fits_now(all, run, model, place)) return text + together + " would fit";
  }
  const std::string where = std::string(place) == "disk" ? "storage.paths with that much free"
                                                         : fmt::format("memory.{} = {}", place, size_text(need));
  if (std::string(place) == "gpu")
    for (const Change& change : other_changes(run.config)) {
      configs::RunConfig one = all;
      change.apply(one);
      if (fits_now(one, run, model, place))
        return text + where + ", or " + (together.empty() ? "" : together + ", ") + change.text +
               " would fit";
    }
  return text + where + " would fit";
}

}  // namespace

std::string fit_advice(const PlannedRun& run, const engine::HfConfig& model) {
  std::string text;
  for (const char* place : {"gpu", "host", "disk"})
    if (!run.fits(place)) text += (text.empty() ? "" : "; ") + advice_for(run, model, place);
  return text;
}

}  // namespace sluice::apps
