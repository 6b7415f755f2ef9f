// Disk, Adam and copies at once, and the profile that all parts make.
#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "apps/bench.h"
#include "base/topology.h"
#include "base/units.h"
#include "engine/device_rates.h"
#include "engine/host_rates.h"
#include "engine/machine_measure.h"
#include "io/disk_rate.h"

namespace sluice::apps {
namespace {

using base::operator""_MiB;
using engine::kRateTile;
using io::IoOp;

constexpr int kRounds = 3;

using Work = std::function<double(double seconds)>;  // for about so long; returns how many units it did

// Units per second of each, by a thread each.
std::vector<double> rates_at_once(const std::vector<Work>& works, double seconds) {
  std::vector<double> rates(works.size());
  std::mutex mutex;
  std::exception_ptr failure;
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < works.size(); ++i)
      threads.emplace_back([&, i] {
        try {
          const double begin = base::monotonic_seconds(), done = works[i](seconds);
          rates[i] = done / (base::monotonic_seconds() - begin);
        } catch (...) {
          const std::lock_guard lock(mutex);
          failure = std::current_exception();
        }
      });
  }
  if (failure) std::rethrow_exception(failure);
  return rates;
}

}  // namespace

TogetherBench bench_together(const BenchOptions& options, gpu::Device& device) {
  const uint64_t free = std::filesystem::space(options.directory).available;
  const io::File file = io::temporary_file(options.directory, std::clamp<uint64_t>(free / 8, 64_MiB, 1024_MiB) / 16_MiB * 16_MiB);
  io::DiskBurst disk(file, {.strict = options.strict});
  engine::AdamWork adam(options.threads);
  engine::CopyWork in(device), out(device);
  disk.fill(options.seconds / 5);

  const auto repeated = [](double units, std::function<void()> call) -> Work {
    return [=](double seconds) { return units * base::repeat_for(seconds, call); };
  };
  const std::vector<Work> works{[&](double seconds) { return 0.5 * static_cast<double>(disk.run(IoOp::read, IoOp::write, seconds)); },
                                repeated(kRateTile, [&] { adam.update(true); }), repeated(in.bytes(), [&] { in.in(); }),
                                repeated(out.bytes(), [&] { out.out(); })};
  TogetherBench bench;
  const double round = options.seconds / (kRounds + 1);
  rates_at_once(works, round / 4);  // warm-up
  const double cpu = base::process_cpu_seconds(), begin = base::monotonic_seconds();
  for (int i = 0; i < kRounds; ++i) {
    const std::vector<double> rates = rates_at_once(works, round);
    const std::array parts{&bench.disk_read, &bench.adam, &bench.h2d, &bench.d2h};
    for (size_t k = 0; k < parts.size(); ++k) parts[k]->rates.push_back(rates[k]);
  }
  bench.busy_cores = (base::process_cpu_seconds() - cpu) / (base::monotonic_seconds() - begin);
  bench.disk_write = bench.disk_read;  // in turn
  return bench;
}

offload::Machine profile_of(const Bench& bench, const BenchOptions& options, offload::Machine m) {
  const std::string name = m.name;
  engine::describe_emulated(m, base::detect_topology().usable_cores());
  if (!name.empty()) m.name = name;
  if (bench.disk) {
    m.disk_read = bench.disk->read.value();
    m.disk_write = bench.disk->write.value();
    m.disk_mixed = bench.disk->mixed.value();
    m.flush = bench.disk->flush;
    m.disk_bytes = std::filesystem::space(options.directory).available;
  }
  // What the drive keeps up, not what its cache takes.
  if (bench.sustained) {
    const double share = m.disk_write > 0 ? std::min(1.0, bench.sustained->rate() / m.disk_write) : 0;
    m.disk_write = bench.sustained->rate();
    m.disk_mixed *= (1 + share) / 2;
  }
  if (bench.adam) m.adam = bench.adam->hashed.value();
  if (bench.memory) m.dram = bench.memory->copy.value();
  if ((bench.memory || bench.adam) && m.dram > 0) m.dram = std::max(m.dram, m.adam * offload::kAdamBytes);  // a copy by memcpy is not the most
  if (bench.copy) {
    m.h2d = bench.copy->h2d.value();
    m.d2h = bench.copy->d2h.value();
  }
  if (bench.compute) m.compute = bench.compute->step.value();
  if (bench.comm) {
    m.net = bench.comm->rate();
    m.net_latency = bench.comm->latency;
  }
  return m;
}

}  // namespace sluice::apps
