#include "engine/machine_measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "base/arena.h"
#include "base/error.h"
#include "base/topology.h"
#include "base/units.h"
#include "cpu_adam/adam.h"
#include "engine/compute_rate.h"
#include "engine/runtime.h"
#include "gpu/emulated_device.h"
#include "io/disk_rate.h"
#include "io/probe.h"

namespace sluice::engine {
namespace {

using base::operator""_MiB;
using offload::Machine;
using Clock = std::chrono::steady_clock;

constexpr size_t kTile = 2 << 20;  // parameters

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Calls work(0), work(1), ... for about so long; the seconds of one call.
template <class Work>
double seconds_of(double budget, const Work& work) {
  work(size_t{0});  // warms up
  const auto start = Clock::now();
  size_t calls = 0;
  do work(++calls);
  while (since(start) < budget);
  return since(start) / static_cast<double>(calls);
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

// Tiles in turn, so that none is still in the cache.
void measure_adam(Machine& m, const MeasureOptions& o) {
  constexpr size_t kTiles = 3;
  const base::Arena arena(kTiles * kTile * 14, "measuring Adam");
  const cpu_adam::CpuAdam adam({.threads = o.optimizer_threads, .target = cpu_adam::Target::best});
  const std::vector<cpu_adam::GroupSpan> spans{{0, kTile, 0}};
  const std::vector<cpu_adam::StepGroup> groups{cpu_adam::make_step_group({.lr = 1e-5}, 10)};
  cpu_adam::LeafHashes hashes;  // as a step that writes needs them
  const double seconds = seconds_of(o.seconds, [&](size_t call) {
    std::byte* tile = arena.data() + call % kTiles * kTile * 14;
    const auto at = [&](size_t bytes_before) { return tile + kTile * bytes_before; };
    adam.update({.state = {reinterpret_cast<uint16_t*>(at(0)), reinterpret_cast<int16_t*>(at(2)), nullptr,
                           reinterpret_cast<float*>(at(4)), reinterpret_cast<float*>(at(8))},
                 .count = kTile,
                 .grad = {at(12), cpu_adam::GradType::bf16},
                 .spans = spans,
                 .groups = groups,
                 .hashes = &hashes});
  });
  m.adam = kTile / seconds;
}

// All cores copy; a copy reads and writes. Adam may well do better than that, so DRAM does too.
void measure_dram(Machine& m, const MeasureOptions& o, unsigned cores) {
  constexpr size_t kPart = 64_MiB;
  const base::Arena arena(2 * kPart * cores, "measuring DRAM");
  const double seconds = seconds_of(o.seconds, [&](size_t) {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < cores; ++t)
      threads.emplace_back(
          [part = arena.data() + 2 * kPart * t, bytes = kPart] { std::memcpy(part, part + bytes, bytes); });
  });
  m.dram = std::max(2.0 * static_cast<double>(kPart * cores) / seconds, m.adam * offload::kAdamBytes);
}

// Tiles of weights in, tiles of rounded gradients out.
void measure_copies(Machine& m, const MeasureOptions& o, gpu::Device& device) {
  constexpr size_t kTiles = 16;
  const auto stream = device.create_stream("measuring copies");
  const auto on_device = device.allocate(kTiles * kTile * sizeof(float), "measuring copies");
  const base::Arena host(kTiles * kTile * 2, "measuring copies");
  const double in = seconds_of(o.seconds / 2, [&](size_t call) {
    stream->copy_in(on_device->data() + call % kTiles * kTile * 4, host.data() + call % kTiles * kTile * 2,
                    kTile * 2);
    stream->synchronize();
  });
  const double out = seconds_of(o.seconds / 2, [&](size_t call) {
    stream->cast_out(host.data() + call % kTiles * kTile * 2,
                     reinterpret_cast<const float*>(on_device->data()) + call % kTiles * kTile, kTile,
                     gpu::WireType::bf16);
    stream->synchronize();
  });
  m.h2d = 2.0 * kTile / in;
  m.d2h = 2.0 * kTile / out;
}

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown processor";
}

}  // namespace

Machine measure_machine(const MeasureOptions& o) {
  const unsigned cores = base::detect_topology().usable_cores();
  Machine m;
  m.name = fmt::format("{}, {} cores", processor(), cores);
  if (!o.directory.empty()) measure_disk(m, o);
  measure_adam(m, o);
  measure_dram(m, o, cores);
  gpu::EmulatedOptions emulated;
  emulated.memory = automatic_memory();
  emulated.compute_threads = o.compute_threads;
  const auto device = gpu::make_emulated_device(emulated);
  measure_copies(m, o, *device);
  m.compute = measure_compute(o, *device);
  // The device is emulated: everything runs on the same cores. A copy is one thread.
  m.compute_cores = m.update_cores = 1;
  m.h2d_cores = m.d2h_cores = 1.0 / cores;
  m.copy_latency = m.update_latency = 5e-5;  // a thread is woken
  m.gpu_bytes = m.host_bytes = automatic_memory() / 2;
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
      processor(), base::detect_topology().usable_cores(), o.compute_threads, o.optimizer_threads,
      disk.mount_point, c.hidden, c.intermediate, c.heads, c.kv_heads, c.head_dim, c.vocab,
      c.family == Family::gpt2 ? " gpt2" : "", o.schema == offload::Schema::bf16 ? "bf16" : "fp32", o.micro_batch, o.sequence, o.loss_chunk);
}

}  // namespace sluice::engine
