#include "engine/comm/comm_rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "base/error.h"

namespace sluice::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Of one call, of the slowest rank. All ranks make the same number of calls.
double seconds_of(Comm& comm, gpu::Stream& stream, double budget, const std::function<void()>& call) {
  const auto time = [&](uint64_t calls) {
    comm.control().barrier(Topic::data);
    const auto start = Clock::now();
    for (uint64_t i = 0; i < calls; ++i) call();
    stream.synchronize();
    const double own = std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(calls);
    double slowest = 0;
    for (const auto& of : comm.control().gather(Topic::data, std::span<const double>(&own, 1))) slowest = std::max(slowest, of[0]);
    return slowest;
  };
  const double first = time(1);  // also warms up
  return time(static_cast<uint64_t>(std::clamp(std::ceil(budget / first), 1.0, 1000.0)));
}

}  // namespace

CommRates measure_comm(Comm& comm, gpu::Device& device, gpu::Stream& stream, uint64_t bytes, double seconds) {
  SLUICE_CHECK(comm.world() > 1, "one rank exchanges nothing");
  const auto world = static_cast<uint64_t>(comm.world()), rank = static_cast<uint64_t>(comm.rank());
  const uint64_t share = std::max<uint64_t>(1, bytes / 2 / world);  // elements of bf16
  const auto whole = device.allocate(2 * share * world, "measurement of the network");
  const auto parts_of = [&](uint64_t count) {
    std::vector<Part> parts;
    for (uint64_t r = 0; r < world; ++r) parts.push_back({r * share, count});
    return parts;
  };
  const auto large = parts_of(share), small = parts_of(1);
  std::byte* own = whole->data() + 2 * share * rank;
  const double received = static_cast<double>(2 * share * (world - 1));
  const auto gather = [&](const std::vector<Part>& parts) { comm.all_gather(stream, own, whole->data(), parts, WireType::bf16); };

  CommRates rates;
  rates.latency = seconds_of(comm, stream, seconds, [&] { gather(small), stream.synchronize(); });
  rates.gather = received / seconds_of(comm, stream, seconds, [&] { gather(large); });
  rates.reduce = received / seconds_of(comm, stream, seconds, [&] {
    comm.reduce_scatter(stream, whole->data(), own, large, WireType::bf16, WireType::bf16);
  });
  return rates;
}

}  // namespace sluice::comm
