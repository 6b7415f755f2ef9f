#include "apps/step_facts.h"

#include <algorithm>
#include <utility>

namespace sluice::apps {
namespace {

using Json = nlohmann::ordered_json;
using offload::ExecutorStats;
using offload::Lane;
using offload::OpKind;

double busy(const ExecutorStats& s, Lane lane) { return s.busy[static_cast<size_t>(lane)]; }

double busy(const ExecutorStats& s, OpKind kind) {
  const auto found = s.busy_by_kind.find(kind);
  return found == s.busy_by_kind.end() ? 0 : found->second;
}

// What the device did with the time of the step; optimizer: on the host beside it.
Json phase_json(const engine::StepReport& step, const StepFacts& facts) {
  const ExecutorStats& s = step.stats;
  const double forward = busy(s, OpKind::forward), loss = busy(s, OpKind::loss), backward = busy(s, OpKind::backward);
  // An operation at work between two steps may have been counted in one of the two only.
  const double again = std::min(facts.now.recompute_seconds - facts.before.recompute_seconds, backward);
  return {{"forward", forward},
          {"loss", loss},
          {"backward", backward - again},
          {"recompute", again},
          {"optimizer", busy(s, Lane::update)},
          {"collective", busy(s, Lane::comm)},
          {"other", std::max(0.0, step.seconds - forward - loss - backward)}};
}

// Of the lanes' time, the share that was hidden behind the longest: 1 when a step takes no longer than its busiest lane.
double overlap_efficiency(const engine::StepReport& step, double disk_seconds) {
  double sum = disk_seconds, most = disk_seconds;
  for (const Lane lane : {Lane::h2d, Lane::d2h, Lane::comm, Lane::compute, Lane::update, Lane::commit}) {
    const double seconds = busy(step.stats, lane);
    sum += seconds;
    most = std::max(most, seconds);
  }
  return sum > most ? std::clamp(1 - (step.seconds - most) / (sum - most), 0.0, 1.0) : 1;
}

Json ratio(double value, double of) { return of > 0 ? Json(value / of) : Json(nullptr); }

}  // namespace

std::optional<double> HiddenShare::add(const ExecutorStats& s) {
  const double before = std::exchange(seconds_, busy(s, Lane::comm)), exposed = std::exchange(exposed_, s.exposed);
  const double seconds = before + seconds_;
  if (seconds <= 0) return std::nullopt;
  return std::clamp(1 - (exposed + exposed_) / seconds, 0.0, 1.0);
}

LinkBytes link_bytes(const std::array<uint64_t, offload::kLanes>& by_lane) {
  const auto of = [&](Lane lane) { return by_lane[static_cast<size_t>(lane)]; };
  return {of(Lane::disk_weights) + of(Lane::disk_state), of(Lane::disk_write_weights) + of(Lane::disk_write_state), of(Lane::h2d),
          of(Lane::d2h), of(Lane::comm)};
}

LinkBytes link_bytes(const offload::Plan& plan) {
  std::array<uint64_t, offload::kLanes> by_lane{};
  for (const offload::Op& op : plan.ops) by_lane[static_cast<size_t>(op.lane)] += op.bytes;
  return link_bytes(by_lane);
}

Json facts_json(const engine::StepReport& step, const StepFacts& facts) {
  const LinkBytes moved = link_bytes(step.stats.bytes);
  const auto number = [](uint64_t n) { return static_cast<double>(n); };
  const io::QueueStats &now = facts.now.disk, &before = facts.before.disk;
  const io::QueueTimes reads = now.reads - before.reads, writes = now.writes - before.writes;
  const double disk_seconds = std::max(reads.busy, writes.busy);
  const ExecutorStats& s = step.stats;
  const uint64_t written = facts.ranks_here * moved.disk_write;
  const double flops_per_s = step.seconds > 0 && !step.timing_only ? facts.flops / step.seconds : 0;
  return {
      {"phase", phase_json(step, facts)},
      {"overlap",
       {{"efficiency", overlap_efficiency(step, disk_seconds)},
        {"prefetch_hits", ratio(number(s.compute_ops - s.compute_waits), number(s.compute_ops))}}},
      {"flops", {{"per_s", flops_per_s}, {"utilization", facts.compute_rate ? ratio(flops_per_s, *facts.compute_rate) : Json(nullptr)}}},
      {"bandwidth",
       {{"disk_read", ratio(number(moved.disk_read), reads.busy)},
        {"disk_write", ratio(number(moved.disk_write), writes.busy)},
        {"h2d", ratio(number(moved.h2d), busy(s, Lane::h2d))},
        {"d2h", ratio(number(moved.d2h), busy(s, Lane::d2h))}}},
      {"bytes_over_plan",
       {{"disk_read", ratio(number(moved.disk_read), number(facts.planned.disk_read))},
        {"disk_write", ratio(number(moved.disk_write), number(facts.planned.disk_write))},
        {"h2d", ratio(number(moved.h2d), number(facts.planned.h2d))},
        {"d2h", ratio(number(moved.d2h), number(facts.planned.d2h))}}},
      {"disk",
       {{"written", written},
        {"written_per_token", ratio(number(written), number(step.tokens))},
        {"read_depth", reads.depth()},
        {"write_depth", writes.depth()},
        {"read_p99", reads.percentile(99)},
        {"write_p99", writes.percentile(99)},
        {"short", now.short_transfers - before.short_transfers},
        {"retries", now.retries - before.retries},
        {"failures", now.failures - before.failures}}},
      {"commit", {{"seconds", busy(s, Lane::commit)}}},
      {"memory",
       {{"gpu_peak", facts.device.peak},
        {"gpu_temporaries_peak", facts.device.temporaries_peak},
        {"gpu_reserved_peak", facts.device.held_peak},
        {"host_peak", facts.now.host_peak},
        {"resident", facts.process.resident},
        {"resident_peak", facts.process.resident_peak},
        {"locked", facts.process.locked},
        {"page_cache", facts.process.page_cache}}}};
}

}  // namespace sluice::apps
