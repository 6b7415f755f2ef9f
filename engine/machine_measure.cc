#include "engine/machine_measure.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/rounds.h"
#include "base/topology.h"
#include "base/units.h"
#include "engine/compute_rate.h"
#include "engine/host_rates.h"
#include "engine/runtime.h"
#include "gpu/emulated_device.h"
#include "io/disk_rate.h"
#include "io/probe.h"

namespace sluice::engine {
namespace {

using base::operator""_MiB;
using offload::Machine;
// Calls of about so long in all, the first one apart: it warms up. Seconds of one call.
double seconds_of(double budget, const std::function<void()>& call) {
  call();
  const double begin = base::monotonic_seconds(), calls = base::repeat_for(budget, call);
  return (base::monotonic_seconds() - begin) / calls;
}

void measure_disk(Machine& m, const MeasureOptions& o) {
  const uint64_t free = std::filesystem::space(o.directory).available;
  const uint64_t bytes = std::min<uint64_t>(512_MiB, free / 10 / 4_MiB * 4_MiB);
  if (bytes < 16_MiB)
    base::fail(base::ErrorKind::disk,
               "{} has {} free: too little to measure the disk; free some, or name a profile with --machine",
               o.directory.string(), base::format_bytes(free));
  const io::DiskProfile disk = io::measure_profile(io::temporary_file(o.directory, bytes), o.seconds);
  m.disk_read = disk.read;
  m.disk_write = disk.write;
  m.disk_mixed = disk.mixed;
  m.flush = disk.flush;
  m.disk_bytes = free;
}

void measure_adam(Machine& m, const MeasureOptions& o) {
  AdamWork work(o.optimizer_threads);
  m.adam = kRateTile / seconds_of(o.seconds, [&] { work.update(/*hashes=*/true); });
}

// All cores copy. Adam may well do better than that, so DRAM does too.
void measure_dram(Machine& m, const MeasureOptions& o, unsigned cores) {
  const DramWork work(cores);
  const double seconds = seconds_of(o.seconds, [&] { work.run(DramWork::Pass::copy); });
  m.dram = std::max(work.bytes(DramWork::Pass::copy) / seconds, m.adam * offload::kAdamBytes);
}

void measure_copies(Machine& m, const MeasureOptions& o, gpu::Device& device) {
  CopyWork work(device);
  m.h2d = 2.0 * kRateTile / seconds_of(o.seconds / 2, [&] { work.in(); });
  m.d2h = 2.0 * kRateTile / seconds_of(o.seconds / 2, [&] { work.out(); });
}

}  // namespace

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown processor";
}

void describe_emulated(Machine& m, unsigned cores) {
  m.name = fmt::format("{}, {} cores", processor_name(), cores);
  m.compute_cores = m.update_cores = 1;
  m.h2d_cores = m.d2h_cores = 1.0 / cores;
  m.copy_latency = m.update_latency = 5e-5;  // a thread is woken
  m.gpu_bytes = m.host_bytes = automatic_memory() / 2;
}

Machine measure_machine(const MeasureOptions& o) {
  const unsigned cores = base::detect_topology().usable_cores();
  Machine m;
  describe_emulated(m, cores);
  if (!o.directory.empty()) measure_disk(m, o);
  measure_adam(m, o);
  measure_dram(m, o, cores);
  gpu::EmulatedOptions emulated;
  emulated.memory = automatic_memory();
  emulated.compute_threads = o.compute_threads;
  const auto device = gpu::make_emulated_device(emulated);
  measure_copies(m, o, *device);
  m.compute = measure_compute(o, *device);
  return m;
}

std::string machine_key(const MeasureOptions& o) {
  const HfConfig& c = o.config;
  std::ifstream mounts("/proc/self/mountinfo");
  const std::string mountinfo{std::istreambuf_iterator<char>(mounts), {}};
  const io::FileSystemInfo disk = io::find_mount(mountinfo, std::filesystem::absolute(o.directory));
  return fmt::format(
      "{}|{} cores|{} compute and {} optimizer threads|{}|hidden {} intermediate {} heads {} {} {} vocab "
      "{}{}|{} {} x {} chunk {}",
      processor_name(), base::detect_topology().usable_cores(), o.compute_threads, o.optimizer_threads,
      disk.mount_point, c.hidden, c.intermediate, c.heads, c.kv_heads, c.head_dim, c.vocab,
      c.family == Family::gpt2 ? " gpt2" : "", offload::to_string(offload::number_type(o.schema)), o.micro_batch, o.sequence, o.loss_chunk);
}

}  // namespace sluice::engine
