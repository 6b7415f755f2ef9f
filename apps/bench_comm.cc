// How fast the ranks of a run exchange, and what their memory could.
#include <algorithm>
#include <cstring>

#include "apps/bench.h"
#include "base/arena.h"
#include "base/statistics.h"
#include "base/units.h"
#include "engine/comm/comm_rates.h"

namespace sluice::apps {
namespace {

using base::operator""_MiB;
using comm::Topic;

constexpr int kRounds = 5;
constexpr uint64_t kWhole = 64_MiB;  // that is gathered or reduced

// Bytes per second that each rank copies within its own memory while all others do the same; of the slowest.
double copied_by_all(comm::Comm& ranks, double seconds) {
  constexpr uint64_t kBytes = 32_MiB;
  const base::Arena memory(2 * kBytes, "measuring ranks");
  const auto copy = [&] { std::memcpy(memory.data(), memory.data() + kBytes, kBytes); };
  copy();
  ranks.control().barrier(Topic::data);
  const double begin = base::monotonic_seconds(), calls = base::repeat_for(seconds, copy);
  const double own = calls * static_cast<double>(kBytes) / (base::monotonic_seconds() - begin);
  double slowest = own;
  for (const auto& of : ranks.control().gather(Topic::data, std::span<const double>(&own, 1))) slowest = std::min(slowest, of[0]);
  return slowest;
}

}  // namespace

CommBench bench_comm(const BenchOptions& options, comm::Comm& ranks, uint64_t on_this_host, gpu::Device& device) {
  CommBench bench;
  bench.transport = ranks.describe();
  bench.world = static_cast<uint64_t>(ranks.world());
  bench.on_this_host = on_this_host;
  const auto stream = device.create_stream("comm");
  std::vector<double> latencies, copies;
  for (int round = 0; round < kRounds; ++round) {
    const comm::CommRates rates = comm::measure_comm(ranks, device, *stream, kWhole, options.seconds / (4 * kRounds));
    bench.gather.rounds.rates.push_back(rates.gather);
    bench.reduce.rounds.rates.push_back(rates.reduce);
    latencies.push_back(rates.latency);
    if (bench.world == on_this_host) copies.push_back(copied_by_all(ranks, options.seconds / (4 * kRounds)));
  }
  bench.gather.limit = base::median(copies);
  bench.reduce.limit = bench.gather.value();
  bench.latency = base::median(latencies);
  return bench;
}

// A step of stage 3 gathers every weight twice and reduces every gradient once. Ranks of one host share its cores: one alone would exchange so many
// times as fast, which shared_by() takes back.
double CommBench::rate() const {
  return 3 / (2 / gather.value() + 1 / reduce.value()) * static_cast<double>(on_this_host);
}

}  // namespace sluice::apps
