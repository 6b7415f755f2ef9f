#include "offload/fluid_rates.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"

namespace sluice::offload {
namespace {

constexpr size_t lane(Lane l) {
  return static_cast<size_t>(l);
}

constexpr Lane kReads[] = {Lane::disk_weights, Lane::disk_state};
constexpr Lane kWrites[] = {Lane::disk_write_weights, Lane::disk_write_state};
constexpr Lane kCopies[] = {Lane::h2d, Lane::d2h};

double adam_bytes(const Machine& m) {
  return kAdamBytes * m.adam;
}
bool shares_cores(const Machine& m) {
  return m.compute_cores > 0 || m.update_cores > 0 || m.h2d_cores > 0 || m.d2h_cores > 0;
}

// Share of all cores per unit of work.
LaneAmounts core_use(const Machine& m) {
  LaneAmounts use{};
  const auto set = [&](Lane l, double cores, double rate) {
    if (rate > 0) use[lane(l)] = cores / rate;
  };
  set(Lane::compute, m.compute_cores, m.compute);
  set(Lane::update, m.update_cores, adam_bytes(m));
  set(Lane::h2d, m.h2d_cores, m.h2d);
  set(Lane::d2h, m.d2h_cores, m.d2h);
  return use;
}

uint64_t key_of(const LaneCounts& counts) {
  uint64_t key = 0;
  for (uint32_t n : counts) {
    SLUICE_CHECK(n < 64, "operations of one lane at work");
    key = key << 6 | n;
  }
  return key;
}

// Least time to read and write so much. A disk can be in a few extreme states (reading, writing, and both
// with one of them as fast as it can be); the best use of it takes turns between at most two.
double disk_seconds(const Machine& m, double read, double written) {
  if (read <= 0 && written <= 0) return 0;
  const double r = m.disk_read, w = m.disk_write, both = m.disk_mixed > 0 ? m.disk_mixed : r + w;
  const std::pair<double, double> states[] = {{r, 0},
                                              {0, w},
                                              {std::min(r, both), std::min(w, both - std::min(r, both))},
                                              {std::min(r, both - std::min(w, both)), std::min(w, both)}};
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [r1, w1] : states) {
    if ((read <= 0 || r1 > 0) && (written <= 0 || w1 > 0))
      least = std::min(least, std::max(read > 0 ? read / r1 : 0, written > 0 ? written / w1 : 0));
    for (const auto& [r2, w2] : states) {
      const double determinant = r1 * w2 - r2 * w1;
      if (determinant == 0) continue;
      const double first = (read * w2 - r2 * written) / determinant,
                   second = (r1 * written - read * w1) / determinant;
      if (first >= 0 && second >= 0) least = std::min(least, first + second);
    }
  }
  return least;
}

}  // namespace

const char* to_string(Resource resource) {
  constexpr const char* names[] = {"disk", "h2d", "d2h", "copies", "net", "dram", "update", "compute", "cores", "commit"};
  return names[static_cast<size_t>(resource)];
}

FluidRates::FluidRates(const Machine& m) {
  const auto add = [&](double capacity, std::initializer_list<Lane> lanes, bool reads_and_writes = false) {
    if (capacity <= 0) return;  // then nothing needs it, or simulate() has refused the plan
    Share share{capacity, {}, reads_and_writes};
    for (Lane l : lanes) share.use[lane(l)] = 1;
    shares_.push_back(share);
  };
  using enum Lane;
  add(m.disk_read, {disk_weights, disk_state});
  add(m.disk_write, {disk_write_weights, disk_write_state});
  add(m.disk_mixed, {disk_weights, disk_state, disk_write_weights, disk_write_state}, true);
  add(m.h2d, {h2d});
  add(m.d2h, {d2h});
  add(m.copy_both, {h2d, d2h});
  add(m.net, {comm});
  add(m.compute, {compute});
  add(adam_bytes(m), {update});
  add(m.dram, {disk_weights, disk_state, disk_write_weights, disk_write_state, h2d, d2h, update});
  if (shares_cores(m)) shares_.push_back({1, core_use(m), false});
  weight_.fill(1);
  // At equal shares, computation and Adam go at the same part of their full rates.
  if (m.compute > 0) weight_[lane(compute)] = m.compute / (m.adam > 0 ? adam_bytes(m) : 1e9);
}

const LaneAmounts& FluidRates::of(const LaneCounts& at_work) {
  const auto [it, fresh] = known_.try_emplace(key_of(at_work));
  if (fresh) it->second = solve(at_work);
  return it->second;
}

// Raises all operations together until a resource is full; what uses that one stays there, the others go on.
LaneAmounts FluidRates::solve(const LaneCounts& at_work) const {
  const auto any = [&](const auto& lanes) {
    return std::any_of(std::begin(lanes), std::end(lanes), [&](Lane l) { return at_work[lane(l)] > 0; });
  };
  const bool both = any(kReads) && any(kWrites);
  std::vector<double> left;
  for (const Share& share : shares_) left.push_back(share.capacity);
  LaneAmounts rates{};
  std::array<bool, kLanes> rising{};
  for (size_t l = 0; l < kLanes; ++l) rising[l] = at_work[l] > 0 && l != lane(Lane::commit);

  while (std::find(rising.begin(), rising.end(), true) != rising.end()) {
    double step = std::numeric_limits<double>::infinity();
    const Share* full = nullptr;
    std::vector<double> use(shares_.size(), 0);
    for (size_t s = 0; s < shares_.size(); ++s) {
      if (shares_[s].reads_and_writes && !both) continue;
      for (size_t l = 0; l < kLanes; ++l)
        if (rising[l]) use[s] += at_work[l] * weight_[l] * shares_[s].use[l];
      if (use[s] > 0 && left[s] / use[s] < step) step = left[s] / use[s], full = &shares_[s];
    }
    SLUICE_CHECK(full != nullptr, "work on a lane whose rate is unknown");
    for (size_t s = 0; s < shares_.size(); ++s) left[s] = std::max(0.0, left[s] - step * use[s]);
    for (size_t l = 0; l < kLanes; ++l) {
      if (!rising[l]) continue;
      rates[l] += step * weight_[l];
      rising[l] = full->use[l] == 0;
    }
  }
  return rates;
}

std::vector<Bound> bounds(const Machine& m, const LaneAmounts& work) {
  const auto sum = [&](const auto& lanes) {
    double total = 0;
    for (Lane l : lanes) total += work[lane(l)];
    return total;
  };
  const auto seconds = [](double amount, double rate) { return amount > 0 && rate > 0 ? amount / rate : 0; };
  const double read = sum(kReads), written = sum(kWrites), update = work[lane(Lane::update)];
  const double disk = disk_seconds(m, read, written);
  double cores = 0;
  const LaneAmounts use = core_use(m);
  for (size_t l = 0; l < kLanes; ++l) cores += work[l] * use[l];
  std::vector<Bound> all{{Resource::disk, disk},
                         {Resource::h2d, seconds(work[lane(Lane::h2d)], m.h2d)},
                         {Resource::d2h, seconds(work[lane(Lane::d2h)], m.d2h)},
                         {Resource::copies, seconds(sum(kCopies), m.copy_both)},
                         {Resource::net, seconds(work[lane(Lane::comm)], m.net)},
                         {Resource::dram, seconds(read + written + sum(kCopies) + update, m.dram)},
                         {Resource::update, seconds(update, adam_bytes(m))},
                         {Resource::compute, seconds(work[lane(Lane::compute)], m.compute)},
                         {Resource::cores, cores},
                         {Resource::commit, work[lane(Lane::commit)]}};
  std::erase_if(all, [](const Bound& b) { return b.seconds <= 0; });
  std::stable_sort(all.begin(), all.end(),
                   [](const Bound& a, const Bound& b) { return a.seconds > b.seconds; });
  return all;
}

}  // namespace sluice::offload
