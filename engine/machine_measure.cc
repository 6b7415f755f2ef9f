#include "engine/machine_measure.h"

#include <fmt/ranges.h>

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
#include "io/drive_rates.h"
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

// A step's reads and writes go to all drives at once, each its share; a flush ends with the slowest.
void measure_disk(Machine& m, const MeasureOptions& o) {
  for (const io::DiskProfile& drive : io::measure_drives(o.directories, o.seconds)) {
    m.disk_read += drive.read;
    m.disk_write += drive.write;
    m.disk_mixed += drive.mixed;
    m.flush = std::max(m.flush, drive.flush);
  }
  for (const std::filesystem::path& directory : o.directories) m.disk_bytes += std::filesystem::space(directory).available;
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
  if (!o.directories.empty()) measure_disk(m, o);
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
  std::vector<std::string> disks;
  for (const std::filesystem::path& directory : o.directories)
    disks.push_back(io::find_mount(mountinfo, std::filesystem::absolute(directory)).mount_point);
  return fmt::format(
      "{}|{} cores|{} compute and {} optimizer threads|{}|hidden {} intermediate {} heads {} {} {} vocab "
      "{}{}|{} {} x {} chunk {}",
      processor_name(), base::detect_topology().usable_cores(), o.compute_threads, o.optimizer_threads,
      fmt::join(disks, " "), c.hidden, c.intermediate, c.heads, c.kv_heads, c.head_dim, c.vocab,
      c.family == Family::gpt2 ? " gpt2" : "", offload::to_string(offload::number_type(o.schema)), o.micro_batch, o.sequence, o.loss_chunk);
}

}  // namespace sluice::engine
