// Disk, Adam and copies at once, and the profile that all parts make.
#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include "apps/bench.h"
#include "base/topology.h"
#include "base/units.h"
#include "engine/host_rates.h"
#include "engine/machine_measure.h"
#include "io/disk_rate.h"

namespace sluice::apps {
namespace {

using base::operator""_MiB;
using engine::kRateTile;
using io::IoOp;

}  // namespace

TogetherBench bench_together(const BenchOptions& options, gpu::Device& device) {
  const uint64_t free = std::filesystem::space(options.directory).available;
  const io::File file = io::temporary_file(options.directory, std::clamp<uint64_t>(free / 8, 64_MiB, 1024_MiB) / 16_MiB * 16_MiB);
  io::DiskBurst disk(file, {.strict = options.strict});
  engine::AdamWork adam(options.threads);
  engine::CopyWork in(device), out(device);
  const double seconds = options.seconds / 2;
  disk.run(IoOp::write, options.seconds / 10);

  TogetherBench bench;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto rate = [&](double& to, double units, auto work) {
    return [&, units, work] {
      try {
        const double begin = base::monotonic_seconds(), done = work();
        to = units * done / (base::monotonic_seconds() - begin);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
      }
    };
  };
  constexpr double kBytes = 2.0 * kRateTile;
  {
    std::vector<std::jthread> threads;
    threads.emplace_back(rate(bench.disk_read, 0.5, [&] { return static_cast<double>(disk.run(IoOp::read, IoOp::write, seconds)); }));
    threads.emplace_back(rate(bench.adam, kRateTile, [&] { return base::repeat_for(seconds, [&] { adam.update(true); }); }));
    threads.emplace_back(rate(bench.h2d, kBytes, [&] { return base::repeat_for(seconds, [&] { in.in(); }); }));
    threads.emplace_back(rate(bench.d2h, kBytes, [&] { return base::repeat_for(seconds, [&] { out.out(); }); }));
  }
  if (failure) std::rethrow_exception(failure);
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
