#include "apps/schedule_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/overlap_choice.h"
#include "base/units.h"
#include "configs/keys.h"
#include "configs/resolve.h"

namespace sluice::apps {
namespace {

using base::operator""_MiB;
using configs::Json;
using configs::RunConfig;

constexpr double kWorthIt = 0.995;  // of the step's time, for a change
constexpr const char* kOverlap = "execution.overlap";
constexpr const char* kGraphs = "execution.keep_graphs";
constexpr const char* kWeights = "execution.keep_weights";
constexpr const char* kSlots = "execution.device_slots";
constexpr const char* kPinned = "memory.pinned";
constexpr const char* kShadow = "memory.shadow";
constexpr const char* kState = "execution.pools.state";
constexpr const char* kWeightsPool = "execution.pools.weights";
constexpr const char* kBoundaries = "execution.boundaries";
constexpr const char* kSearched[] = {kOverlap, kBoundaries, kGraphs, kWeights, kSlots, kPinned, kState, kWeightsPool};

Json value_of(const RunConfig& config, const char* key) { return configs::find_key(key)->write(config); }

bool is_open(const RunConfig& config, const char* key) {
  return value_of(config, key) == "auto" || configs::origin_of(config, key).kind == configs::Origin::Kind::derived;
}

Json given(const RunConfig& config, const char* key) { return is_open(config, key) ? Json("auto") : value_of(config, key); }

RunConfig with(RunConfig config, const char* key, const Json& value) {
  configs::find_key(key)->read(config, value);
  return config;
}

std::string took(double seconds) { return fmt::format("{:.4g} s", seconds); }

class Chooser {
 public:
  Chooser(const RunConfig& config, const ScheduleSearch& search, Choose which)
      : search_(search), which_(which), original_(config), choice_{config, {}, {}}, seconds_(search.seconds(config)) {}

  ScheduleChoice choose() {
    overlap();
    const bool none = weights_stay();
    if (!none) smaller_to_fit(kSlots, {1}, "memory.gpu");
    smaller_to_fit(kBoundaries, {"host"}, "memory.gpu");
    smaller_to_fit(kState, {16, 8, 4}, "memory.host");
    largest(kGraphs, "layers are not computed again");
    boundaries();
    if (!none) largest(kWeights, "layers' weights are not copied in twice");
    if (!none) smallest(kSlots, {1, 2, 3, 4}, "layers on the device let copies run ahead");
    if (on_disk()) smallest(kPinned, pinned_sizes(), "are never read again");
    if (on_disk()) smallest(kState, {4, 8, 16, 32, 64, 128, 256, 512}, "state buffers let reads, the optimizer and writes run beside each other");
    if (config().zero_optimization.offload_param.device == offload::Tier::nvme)
      smallest(kWeightsPool, {16, 32, 64, 128, 256, 512, 1024}, "buffers for weights let reads run ahead of copies");
    if (!changed_.empty()) overlap();
    for (const char* key : kSearched) settle(key);
    settle(kShadow);
    return std::move(choice_);
  }

 private:
  bool may_choose(const char* key) const { return which_ == Choose::all || is_open(original_, key); }
  bool weights_stay() const { return config().zero_optimization.offload_param.device == offload::Tier::none; }
  bool on_disk() const {
    return config().zero_optimization.offload_param.device == offload::Tier::nvme ||
           config().zero_optimization.offload_optimizer.device == offload::Tier::nvme;
  }
  const RunConfig& config() const { return choice_.config; }
  bool better(std::optional<double> seconds) const { return seconds && (!seconds_ || *seconds < kWorthIt * *seconds_); }

  void take(const char* key, const Json& value, std::optional<double> seconds, const std::string& why) {
    std::erase_if(choice_.settings, [&](const SettingChoice& s) { return s.key == key; });
    choice_.settings.push_back({key, given(original_, key), value, seconds_.value_or(0), seconds.value_or(0), why});
    choice_.config = with(config(), key, value);
    seconds_ = seconds;
    changed_ = key;
  }

  void overlap() {
    if (!may_choose(kOverlap) || !seconds_) return;
    choice_.config.memory.shadow = original_.memory.shadow;
    std::erase_if(choice_.settings, [](const SettingChoice& s) { return s.key == kShadow; });
    const OverlapChoice found = choose_overlap(config(), search_);
    choice_.guess_limit = found.guess_limit;
    if (found.placement == config().execution.overlap && !is_open(original_, kOverlap)) return;
    if (found.shadow && !original_.memory.shadow) take(kShadow, *found.shadow, seconds_, "a copy of the old state of what is updated in the backward");
    take(kOverlap, offload::to_string(found.placement), found.seconds, found.reason);
  }

  // What does not fit as it is may fit with less.
  void smaller_to_fit(const char* key, const std::vector<Json>& values, const char* budget) {
    if (seconds_ || !may_choose(key)) return;
    for (const Json& value : values)
      if (const auto seconds = search_.seconds(with(config(), key, value)))
        return take(key, value, seconds, fmt::format("it does not fit {} with more", budget));
  }

  // Most layers that fit; 0: none.
  uint32_t most_layers(const RunConfig& from, const char* key) const {
    uint32_t fits = 0, not_fits = search_.layers() + 1;
    while (fits + 1 < not_fits) {
      const uint32_t middle = not_fits > search_.layers() && fits == 0 ? search_.layers() : (fits + not_fits) / 2;  // all of them first
      (search_.fits(with(from, key, middle)) ? fits : not_fits) = middle;
    }
    return fits;
  }

  // As many layers as there is room for.
  void largest(const char* key, const char* what) {
    if (!may_choose(key) || !seconds_) return;
    const uint32_t fits = most_layers(config(), key);
    if (fits == 0 || fits == config_count(key)) return;
    const auto seconds = search_.seconds(with(config(), key, fits));
    if (!better(seconds)) return;
    take(key, fits, seconds, fmt::format("{} of {} {}: {} instead of {} a step{}", fits, search_.layers(), what, took(*seconds), took(*seconds_),
                                         fits < search_.layers() ? "; more would not fit memory.gpu" : ""));
  }

  // In RAM they cost copies, and leave the device room for graphs.
  void boundaries() {
    if (!may_choose(kBoundaries) || !may_choose(kGraphs) || !seconds_) return;
    const bool here = value_of(config(), kBoundaries) == "gpu";
    const RunConfig other = with(config(), kBoundaries, here ? "host" : "gpu");
    if (!search_.fits(other)) return;
    const uint32_t graphs = most_layers(other, kGraphs);
    const auto seconds = search_.seconds(with(other, kGraphs, graphs));
    if (!better(seconds)) return;
    const std::string why = fmt::format("with {} graphs kept beside them: {} instead of {} a step", graphs, took(*seconds), took(*seconds_));
    const std::optional<double> before = seconds_;
    take(kBoundaries, here ? "host" : "gpu", seconds, why);
    if (graphs == config_count(kGraphs)) return;
    seconds_ = before;
    take(kGraphs, graphs, seconds, fmt::format("{} of {} layers are not computed again, with boundaries on the {}", graphs, search_.layers(), here ? "host" : "device"));
  }

  uint32_t config_count(const char* key) const {
    const Json value = value_of(config(), key);
    return value.is_number() ? value.get<uint32_t>() : value == "all" ? search_.layers() : 0;
  }

  // Of values that cost ever more memory the cheapest one that is nearly as good as the best.
  void smallest(const char* key, const std::vector<uint64_t>& values, const char* what) {
    if (!may_choose(key) || !seconds_) return;
    std::vector<std::pair<uint64_t, double>> tried;
    for (const uint64_t value : values)
      if (const auto seconds = search_.seconds(with(config(), key, value))) tried.emplace_back(value, *seconds);
    if (tried.empty()) return;
    const double best = std::min_element(tried.begin(), tried.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->second;
    if (!better(best)) return;
    const auto found = std::find_if(tried.begin(), tried.end(), [&](const auto& t) { return t.second <= best / kWorthIt && better(t.second); });
    const auto chosen = found == tried.end() ? std::find_if(tried.begin(), tried.end(), [&](const auto& t) { return t.second == best; }) : found;
    const std::string amount = std::string(key) == kPinned ? base::format_bytes(chosen->first) : std::to_string(chosen->first);
    take(key, chosen->first, chosen->second, fmt::format("{} {}: {} instead of {} a step", amount, what, took(chosen->second), took(*seconds_)));
  }

  // The embedding, whose update is the only one a step waits for; then as much as there is room for, in MiB.
  std::vector<uint64_t> pinned_sizes() const {
    const RunConfig bare = with(config(), kPinned, 0);
    const uint64_t most = std::min(search_.room(bare, "host") / 1_MiB, base::ceil_div(search_.parameters() * search_.parameter_bytes(), 1_MiB));
    std::vector<uint64_t> sizes;
    if (search_.embedding_bytes() <= most * 1_MiB) sizes.push_back(search_.embedding_bytes());
    for (const uint64_t part : {2u, 4u, 6u, 8u})
      if (const uint64_t bytes = most * part / 8 * 1_MiB; bytes > search_.embedding_bytes()) sizes.push_back(bytes);
    return sizes;
  }

  // The run's config says of every chosen value why.
  void settle(const char* key) {
    const auto chosen = std::find_if(choice_.settings.begin(), choice_.settings.end(), [&](const SettingChoice& s) { return s.key == key; });
    if (chosen != choice_.settings.end()) choice_.config.origins[key] = {configs::Origin::Kind::chosen, "chosen: " + chosen->reason};
  }

  const ScheduleSearch& search_;
  const Choose which_;
  const RunConfig original_;
  ScheduleChoice choice_;
  std::optional<double> seconds_;  // of choice_.config; none: it does not fit
  std::string changed_;            // key of the last change
};

}  // namespace

bool has_open_settings(const RunConfig& config) {
  for (const char* key : kSearched)
    if (is_open(config, key)) return true;
  return false;
}

bool asks_for_choice(const RunConfig& config) {
  return std::ranges::any_of(kSearched, [&](const char* key) {
    const auto kind = configs::origin_of(config, key).kind;
    return value_of(config, key) == "auto" && (kind == configs::Origin::Kind::file || kind == configs::Origin::Kind::command_line);
  });
}

ScheduleChoice choose_schedule(const RunConfig& config, const engine::HfConfig& model, const offload::Machine& machine, const Budgets& budgets,
                               Choose which) {
  const ScheduleSearch search(config, model, machine, budgets);
  return Chooser(config, search, which).choose();
}

OpenPlan plan_open(const RunConfig& config, const engine::HfConfig& model, const offload::Machine& machine, const PlanRequest& request) {
  PlannedRun given = plan_config(config, model, machine, request);
  ScheduleChoice choice{given.config, {}, {}};
  if (!given.timed() || !has_open_settings(given.config)) return {std::move(given), std::move(choice)};
  choice = choose_schedule(given.config, model, given.machine, {given.memory.gpu_have, given.memory.host_have}, Choose::open);
  if (choice.settings.empty()) return {std::move(given), std::move(choice)};
  PlanRequest with_guesses = request;
  with_guesses.guess_limit = choice.guess_limit;
  PlannedRun chosen = plan_config(choice.config, model, machine, with_guesses);
  const bool slower = chosen.plan.simulation.step_seconds > given.plan.simulation.step_seconds;
  if (given.fits_memory() && (slower || !chosen.fits_memory())) {
    choice = {given.config, {}, {}};
    return {std::move(given), std::move(choice)};
  }
  return {std::move(chosen), std::move(choice)};
}

}  // namespace sluice::apps
