// The parts of `sluice bench` that are cores and memory: DRAM, Adam, copies, computation.
#include <algorithm>
#include <cstring>

#include "apps/bench.h"
#include "base/statistics.h"
#include "base/topology.h"
#include "engine/compute_rate.h"
#include "engine/device_rates.h"
#include "engine/host_rates.h"

namespace sluice::apps {
namespace {

using base::Rounds;
using engine::kRateTile;

constexpr int kRounds = 7;

// Work of which each call is so many units.
Rate rate_of(double seconds, double units, const std::function<void()>& call) {
  return {base::measure_rounds(kRounds, seconds / (kRounds + 1), [&](double s) { return units * base::repeat_for(s, call); }), 0};
}

// Several kinds of work in turn in every round, because the rate of a shared machine drifts: comparable medians.
std::vector<Rounds> alternating(double seconds, double units, const std::vector<std::function<void()>>& works) {
  std::vector<Rounds> all(works.size());
  const double each = seconds / static_cast<double>(works.size()) / (kRounds + 1);
  for (int round = 0; round < kRounds; ++round)
    for (size_t w = 0; w < works.size(); ++w) {
      const Rounds one = base::measure_rounds(1, each, [&](double s) { return units * base::repeat_for(s, works[w]); });
      all[w].rates.push_back(one.rates.front());
      all[w].cpu_per_unit += one.cpu_per_unit / kRounds;
    }
  return all;
}

engine::MeasureOptions measure_options(const BenchOptions& options) {
  engine::MeasureOptions o;
  o.config = options.model;
  o.compute_threads = o.optimizer_threads = options.threads;
  o.seconds = options.seconds / 10;
  return o;
}

}  // namespace

MemoryBench bench_memory(const BenchOptions& options) {
  using Pass = engine::DramWork::Pass;
  const engine::DramWork work(base::detect_topology().usable_cores());
  const auto pass = [&](Pass kind) { return rate_of(options.seconds / 3, work.bytes(kind), [&, kind] { work.run(kind); }); };
  MemoryBench bench{pass(Pass::read), pass(Pass::write), pass(Pass::copy)};
  const double best = std::max({bench.read.value(), bench.write.value(), bench.copy.value()});
  bench.read.limit = bench.write.limit = bench.copy.limit = best;
  return bench;
}

AdamBench bench_adam(const BenchOptions& options) {
  engine::AdamWork work(options.threads, 8);
  AdamBench bench;
  bench.kernel = work.describe();
  std::vector<Rounds> rounds = alternating(options.seconds, kRateTile,
                                           {[&] { work.stream(); }, [&] { work.update(false); }, [&] { work.update(true); }});
  const double limit = rounds[0].median();
  bench.plain = {std::move(rounds[1]), limit};
  bench.hashed = {std::move(rounds[2]), limit};
  return bench;
}

CopyBench bench_copy(const BenchOptions& options, gpu::Device& device) {
  engine::CopyWork work(device);
  CopyBench bench;
  bench.device = device.describe();
  bench.h2d = rate_of(options.seconds * 0.4, work.bytes(), [&] { work.in(); });
  bench.d2h = rate_of(options.seconds * 0.4, work.bytes(), [&] { work.out(); });
  if (device.kind() != gpu::DeviceKind::cpu) return bench;
  const base::Arena memory(32 * kRateTile * 2, "measuring copies");
  size_t call = 0;
  const double copied = rate_of(options.seconds * 0.2, 2.0 * kRateTile, [&] {
                          std::byte* tile = memory.data() + call++ % 16 * kRateTile * 4;
                          std::memcpy(tile, tile + kRateTile * 2, kRateTile * 2);
                        }).value();
  bench.h2d.limit = copied;
  bench.d2h.limit = copied * 2 / 3;  // reads 4 bytes for every 2 that it writes
  return bench;
}

ComputeBench bench_compute(const BenchOptions& options, gpu::Device& device) {
  const engine::MeasureOptions measure = measure_options(options);
  ComputeBench bench;
  std::vector<double> products;
  for (int round = 0; round < 3; ++round) {
    const double cpu = base::process_cpu_seconds(), begin = base::monotonic_seconds();
    bench.step.rounds.rates.push_back(engine::measure_compute(measure, device, 1).median());
    const double seconds = base::monotonic_seconds() - begin;
    bench.step.rounds.cpu_per_unit += (base::process_cpu_seconds() - cpu) / seconds / bench.step.rounds.rates.back() / 3;
    products.push_back(engine::measure_product(measure, device));
  }
  bench.step.limit = base::median(products);
  return bench;
}

}  // namespace sluice::apps
