#include "apps/tuning.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "configs/keys.h"
#include "configs/resolve.h"

namespace sluice::apps {
namespace {

using configs::RunConfig;
using offload::Tier;

constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "gradient_accumulation_steps";
constexpr const char* kParam = "zero_optimization.offload_param.device";
constexpr const char* kOptimizer = "zero_optimization.offload_optimizer.device";

// One way to place and cut the step; the other settings are found for each.
struct Variant {
  RunConfig config;
  std::string reason;  // empty: the config's own
};

void set(RunConfig& config, const char* key, const configs::Json& value) {
  configs::find_key(key)->read(config, value);
  config.origins[key] = {configs::Origin::Kind::chosen, "chosen: sluice tune"};
}

std::vector<Variant> batches(const RunConfig& config, const TuneRequest& request) {
  std::vector<Variant> variants{{config, ""}};
  if (!request.batch) return variants;
  const uint64_t sequence = config.data.sequence_length, world = config.run.world;
  const uint64_t tokens = request.tokens_per_step.value_or(config.micro_batch() * config.accumulation() * sequence * world);
  if (tokens == 0 || tokens % (sequence * world) != 0)
    base::fail(base::ErrorKind::config, "--tokens {}: not a multiple of data.sequence_length = {}{}", tokens, sequence,
               world == 1 ? "" : fmt::format(" times {} ranks", world));
  const uint64_t rows = tokens / sequence / world;  // of a rank
  if (rows != config.micro_batch() * config.accumulation()) variants.clear();
  for (uint64_t micro = 1; micro <= rows; ++micro) {
    if (rows % micro != 0 || (!variants.empty() && micro == config.micro_batch() && rows == config.micro_batch() * config.accumulation())) continue;
    Variant variant{config, fmt::format("{} tokens a step as {} x {} rows", tokens, rows / micro, micro)};
    set(variant.config, kMicro, micro);
    set(variant.config, kAccumulation, rows / micro);
    set(variant.config, "train_batch_size", rows * world);
    variants.push_back(std::move(variant));
  }
  return variants;
}

std::vector<Variant> with_tiers(const Variant& variant) {
  constexpr std::pair<Tier, Tier> kPairs[] = {{Tier::none, Tier::none}, {Tier::none, Tier::cpu},  {Tier::none, Tier::nvme}, {Tier::cpu, Tier::cpu},
                                              {Tier::cpu, Tier::nvme},  {Tier::nvme, Tier::cpu}, {Tier::nvme, Tier::nvme}};
  std::vector<Variant> variants{variant};
  const configs::ZeroOptions& zero = variant.config.zero_optimization;
  for (const auto& [weights, state] : kPairs) {
    if (zero.offload_param.device == weights && zero.offload_optimizer.device == state) continue;
    if (state == Tier::none && variant.config.storage.durable == offload::Durable::step) continue;
    Variant other = variant;
    set(other.config, kParam, offload::to_string(weights));
    set(other.config, kOptimizer, offload::to_string(state));
    if (state == Tier::none && other.config.execution.resident_blocks.value_or(0) > 0) set(other.config, "execution.resident_blocks", 0);  // all are
    other.reason += fmt::format("{}weights {}, state {}", other.reason.empty() ? "" : "; ", offload::to_string(weights), offload::to_string(state));
    variants.push_back(std::move(other));
  }
  return variants;
}

struct Found {
  ScheduleChoice choice;
  double seconds;
  std::string reason;
};

// What a variant begins with, then the choices for it in their order.
std::vector<SettingChoice> changes(const RunConfig& given, const RunConfig& before, double before_seconds, const RunConfig& after, const Found& found) {
  const std::vector<SettingChoice>& chosen = found.choice.settings;
  std::vector<SettingChoice> settings;
  for (const configs::Key& key : configs::keys()) {
    const bool in_search = std::ranges::any_of(chosen, [&](const SettingChoice& s) { return s.key == key.path; });
    const configs::Json becomes = key.write(after);
    if (in_search || key.write(before) == becomes || key.write(given) == becomes) continue;
    settings.push_back({key.path, key.write(given), becomes, before_seconds, chosen.empty() ? found.seconds : chosen.front().before, found.reason});
  }
  for (const SettingChoice& s : chosen)
    if (s.was != s.becomes) settings.push_back(s);
  return settings;
}

}  // namespace

Tuned tune(const RunConfig& config, const engine::HfConfig& model, const offload::Machine& machine, const TuneRequest& request) {
  OpenPlan open = plan_open(config, model, machine, request.plan);
  if (!open.run.timed())
    base::fail(base::ErrorKind::disk, "the disk's rates are not known, and what is fastest follows from them: name a profile with --machine, or free some "
               "of the drive, so that it can be measured");
  Tuned tuned{std::move(open.run), {}, {}, std::move(open.choice.settings)};
  const PlannedRun& before = tuned.before;
  const Budgets budgets{before.memory.gpu_have, before.memory.host_have};
  // Settings that the config leaves open are open for each variant; its tiers and threads are chosen.
  RunConfig base = plan_config(config, model, machine, request.plan).config;

  std::optional<Found> best;
  for (const Variant& batch : batches(base, request))
    for (const Variant& variant : request.tiers ? with_tiers(batch) : std::vector<Variant>{batch}) {
      ScheduleChoice choice = choose_schedule(variant.config, model, before.machine, budgets, Choose::all);
      const ScheduleSearch search(choice.config, model, before.machine, budgets);
      const auto seconds = search.seconds(choice.config);
      if (seconds && (!best || *seconds < best->seconds)) best = Found{std::move(choice), *seconds, variant.reason};
    }

  const double was = before.plan.simulation.step_seconds;
  if (best) {
    PlannedRun after = plan_config(best->choice.config, model, machine, request.plan);
    const double becomes = after.plan.simulation.step_seconds;
    const bool same_work = after.tokens_per_step() == before.tokens_per_step();
    if (after.fits_memory() && (!before.fits_memory() || !same_work || becomes < was)) {
      tuned.settings = changes(config, before.config, before.fits_memory() ? was : 0, after.config, *best);
      tuned.after = std::move(after);
      return tuned;
    }
  }
  tuned.after = plan_config(before.config, model, machine, request.plan);
  return tuned;
}

}  // namespace sluice::apps
