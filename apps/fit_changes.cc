#include "apps/fit_changes.h"

#include <fmt/format.h>

#include <algorithm>

#include "configs/json_text.h"
#include "configs/keys.h"
#include "configs/resolve.h"

namespace sluice::apps {
namespace {

using configs::RunConfig;

constexpr const char* kWeights = "zero_optimization.offload_param.device";
constexpr const char* kState = "zero_optimization.offload_optimizer.device";
constexpr const char* kBoundaries = "execution.boundaries";
constexpr const char* kPool = "execution.pools.weights";
constexpr const char* kTotal = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "gradient_accumulation_steps";

std::string value_of(const RunConfig& config, const std::string& key) {
  return configs::plain(configs::find_key(key)->write(config));
}

// So many micro-batches of so many rows, with the total where the config gives that too.
Change batch(const RunConfig& config, uint64_t micro, uint64_t accumulation, std::string note) {
  Change change{"gpu", {{kAccumulation, std::to_string(accumulation)}}, {}, std::move(note)};
  if (micro != config.micro_batch()) change.settings.insert(change.settings.begin(), {kMicro, std::to_string(micro)});
  const uint64_t total = micro * accumulation * config.run.world;
  const bool given = config.train_batch_size && configs::origin_of(config, kTotal).kind != configs::Origin::Kind::derived;
  if (given && total != *config.train_batch_size) change.settings.emplace_back(kTotal, std::to_string(total));
  return change;
}

// Tiles of the run that its host buffers for weights hold.
uint64_t weights_pool(const PlannedRun& run) {
  const auto size = [&](offload::Ring ring) { return uint64_t{run.plan.plan.rings[static_cast<size_t>(ring)].size}; };
  return size(offload::Ring::weights) + size(offload::Ring::weights_held) * tile_scale(run);
}

// Does a change after number i give the key too?
bool given_later(const std::vector<Change>& changes, size_t i, const std::string& key) {
  for (++i; i < changes.size(); ++i)
    for (const Change::Setting& setting : changes[i].settings)
      if (setting.first == key) return true;
  return false;
}

}  // namespace

std::vector<Change> harmless_changes(const PlannedRun& run) {
  std::vector<Change> changes{{"gpu", {{"execution.resident_blocks", "0"}}},
                              {"gpu", {{"execution.keep_graphs", "0"}}},
                              {"gpu", {{"execution.keep_weights", "0"}}},
                              {"gpu", {{"execution.device_slots", "1"}}},
                              {"gpu", {{kBoundaries, "host"}}},
                              {"gpu", {{kState, "cpu"}}, Change::Setting{kState, "none"}},
                              {"gpu", {{kWeights, "cpu"}}, Change::Setting{kWeights, "none"}},
                              {"host", {{"memory.pinned", "0"}}},
                              {"host", {{"memory.shadow", "0"}}},
                              {"host", {{kBoundaries, "gpu"}}}};
  const uint64_t pool = weights_pool(run);
  for (const uint64_t quarters : {3u, 2u, 1u}) changes.push_back({"host", {{kPool, std::to_string(std::max<uint64_t>(1, pool * quarters / 4))}}});
  changes.push_back({"host", {{"execution.pools.state", "8"}}});
  changes.push_back({"host", {{kState, "nvme"}}, Change::Setting{kState, "cpu"}});
  changes.push_back({"host", {{kWeights, "nvme"}}, Change::Setting{kWeights, "cpu"}});
  Change one_slot{"disk", {{"storage.durable", "none"}}};
  if (run.config.checkpoint.every != 0) one_slot.settings.emplace_back("checkpoint.every", "0");  // they do not go together
  changes.push_back(std::move(one_slot));
  return changes;
}

std::vector<Change> other_changes(const RunConfig& config) {
  std::vector<Change> changes;
  const uint64_t rows = config.accumulation() * config.micro_batch();
  if (config.micro_batch() > 1) changes.push_back(batch(config, 1, rows, ""));
  if (config.model.loss_chunk > 64) changes.push_back({"gpu", {{"model.loss_chunk", "64"}}});
  for (uint64_t n = config.accumulation() / 2; n >= 1; n /= 2) changes.push_back(batch(config, config.micro_batch(), n, "a smaller batch"));
  if (config.micro_batch() > 1) changes.push_back(batch(config, 1, 1, "a smaller batch"));
  for (uint64_t n = config.data.sequence_length / 2; n >= 128; n /= 2)
    changes.push_back({"gpu", {{"data.sequence_length", std::to_string(n)}}, {}, "shorter samples"});
  return changes;
}

bool applies(const Change& change, const RunConfig& config) {
  if (change.from && value_of(config, change.from->first) != change.from->second) return false;
  return std::ranges::any_of(change.settings, [&](const Change::Setting& setting) {
    const std::string value = value_of(config, setting.first);
    return value != setting.second && !(value == "auto" && setting.second == "0");  // none are kept, or pinned, unless it is chosen
  });
}

std::string changes_text(const std::vector<Change>& changes) {
  std::string text;
  for (size_t i = 0; i < changes.size(); ++i) {
    for (const auto& [key, value] : changes[i].settings) {
      if (!given_later(changes, i, key)) text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, value);
    }
    if (!changes[i].note.empty()) text += fmt::format(" ({})", changes[i].note);
  }
  return text;
}

uint64_t tile_scale(const PlannedRun& run) { return run.plan.planned_layout().tile_elements() / run.plan.layout->tile_elements(); }

std::vector<Change> with_planned_pools(std::vector<Change> changes, const PlannedRun& run) {
  for (Change& change : changes)
    for (auto& [key, value] : change.settings)
      if (key == kPool) value = std::to_string(std::stoull(value) / tile_scale(run));
  return changes;
}

std::vector<std::string> assignments(const std::vector<Change>& changes) {
  std::vector<std::string> set;
  for (const Change& change : changes)
    for (const auto& [key, value] : change.settings) set.push_back(key + "=" + value);
  return set;
}

}  // namespace sluice::apps
