#include "engine/machine_measure.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/other_load.h"
#include "base/rounds.h"
#include "base/statistics.h"
#include "base/topology.h"
#include "base/units.h"
#include "engine/compute_rate.h"
#include "engine/device_rates.h"
#include "engine/host_rates.h"
#include "engine/runtime.h"
#include "gpu/cuda_device.h"
#include "gpu/emulated_device.h"
#include "io/drive_rates.h"
#include "io/probe.h"

namespace sluice::engine {
namespace {

using base::Rounds;
using offload::Machine;

constexpr int kProfile = 3;  // raised when a profile's rates mean something else, or are measured in another way
constexpr int kRounds = 3;
constexpr int kTrials = 9;             // of times too short for rounds
constexpr double kThreadWoken = 5e-5;  // seconds until a thread that slept is at work
constexpr double kDisagree = 0.3;      // spread of the rounds, or share of the processors that others use: the machine is busy

class Measurement {
 public:
  Measurement(const MeasureOptions& options, gpu::Device& device, const base::Topology& topology)
      : options_(options),
        device_(device),
        each_(options.seconds / kRounds),
        cores_(topology.usable_cores()),
        others_(topology.cpu_quota ? std::vector<unsigned>{} : topology.cpus) {}  // with a quota there are processors for the others

  Machine measure();

 private:
  double rate(const char* what, const Rounds& rounds) {
    if (rounds.spread() > spread_) spread_ = rounds.spread(), spreading_ = what;
    return rounds.median();
  }
  double rate(const char* what, double units, double seconds, const std::function<void()>& call) {
    return rate(what, base::measure_rounds(kRounds, seconds, [&](double s) { return units * base::repeat_for(s, call); }));
  }
  void disk();
  void adam();
  void dram();
  void copies();
  void compute();
  void describe_own_device();
  void own_links(CopyWork& in);
  void own_memory();
  std::string disturbance() const;

  const MeasureOptions& options_;
  gpu::Device& device_;
  const double each_;  // seconds of a round
  const unsigned cores_;
  const base::OtherLoad others_;
  Machine machine_;
  double spread_ = 0;  // the largest so far, and of which rate
  const char* spreading_ = "";
};

// A step's reads and writes go to all drives at once, each its share; a flush ends with the slowest.
void Measurement::disk() {
  Rounds read, write, mixed, flush;
  for (int round = 0; round < kRounds; ++round) {
    io::DiskProfile all;
    for (const io::DiskProfile& drive : io::measure_drives(options_.directories, each_)) {
      all.read += drive.read;
      all.write += drive.write;
      all.mixed += drive.mixed;
      all.flush = std::max(all.flush, drive.flush);
    }
    read.rates.push_back(all.read);
    write.rates.push_back(all.write);
    mixed.rates.push_back(all.mixed);
    flush.rates.push_back(all.flush);
  }
  machine_.disk_read = rate("disk.read", read);
  machine_.disk_write = rate("disk.write", write);
  machine_.disk_mixed = rate("disk.mixed", mixed);
  machine_.flush = flush.median();
  for (const std::filesystem::path& directory : options_.directories) machine_.disk_bytes += std::filesystem::space(directory).available;
}

void Measurement::adam() {
  AdamWork work(options_.optimizer_threads);
  machine_.adam = rate("adam", kRateTile, each_, [&] { work.update(/*hashes=*/true); });
}

// All cores copy. Adam may well do better than that, so DRAM does too.
void Measurement::dram() {
  const DramWork work(cores_);
  const double copied = rate("dram", work.bytes(DramWork::Pass::copy), each_, [&] { work.run(DramWork::Pass::copy); });
  machine_.dram = std::max(copied, machine_.adam * offload::kAdamBytes);
}

void Measurement::copies() {
  CopyWork work(device_);
  machine_.h2d = rate("copy.h2d", work.bytes(), each_ / 2, [&] { work.in(); });
  machine_.d2h = rate("copy.d2h", work.bytes(), each_ / 2, [&] { work.out(); });
  if (!device_.host_addressable()) own_links(work);
}

// Of a device that is not made of the host's cores and memory.
void Measurement::own_links(CopyWork& in) {
  CopyWork out(device_);
  Rounds both;
  std::vector<double> enqueue, latency;
  for (int round = 0; round < kRounds; ++round) both.rates.push_back(measure_both_ways(in, out, each_ / 2));
  for (int trial = 0; trial < kTrials; ++trial) {
    enqueue.push_back(in.enqueue_seconds());
    latency.push_back(in.latency_seconds());
  }
  machine_.copy_both = std::max({rate("copy.both", both), machine_.h2d, machine_.d2h});
  machine_.enqueue = base::median(std::move(enqueue));
  machine_.copy_latency = std::max(0.0, base::median(std::move(latency)) - machine_.enqueue);
}

void Measurement::own_memory() {
  DeviceAdamWork work(device_);
  machine_.device_memory_rate = offload::kAdamBytes * rate("compute.memory_rate", work.parameters(), each_ / 2, [&] { work.update(); });
}

void Measurement::compute() {
  MeasureOptions round = options_;
  round.seconds = each_;
  machine_.compute = rate("compute", measure_compute(round, device_, kRounds));
}

std::string Measurement::disturbance() const {
  if (const double share = others_.share(); share > kDisagree) return fmt::format("other processes took {:.0f} % of the processors", 100 * share);
  if (spread_ > kDisagree) return fmt::format("{} differed by {:.0f} % between rounds", spreading_, 100 * spread_);
  return "";
}

// Nothing on the host is short of cores for it.
void Measurement::describe_own_device() {
  machine_.name = fmt::format("{}, {} cores, {}", processor_name(), cores_, options_.gpu);
  machine_.update_latency = kThreadWoken;
  machine_.gpu_bytes = device_.budget().limit();
  machine_.host_bytes = automatic_memory();
}

Machine Measurement::measure() {
  const bool own = !device_.host_addressable();
  if (own) {
    describe_own_device();
  } else {
    describe_emulated(machine_, cores_);
  }
  if (!options_.directories.empty()) disk();
  adam();
  dram();
  copies();
  if (own) own_memory();
  compute();
  machine_.runtime_bytes = device_.memory().runtime;  // with all loaded that a step needs
  machine_.busy = disturbance();
  return machine_;
}

std::unique_ptr<gpu::Device> make_device(const MeasureOptions& o) {
  if (!o.gpu.empty()) return gpu::make_cuda_device({.deterministic = o.deterministic});
  gpu::EmulatedOptions emulated;
  emulated.memory = automatic_memory();
  emulated.compute_threads = o.compute_threads;
  return gpu::make_emulated_device(emulated);
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
  m.copy_latency = m.update_latency = kThreadWoken;
  m.gpu_bytes = m.host_bytes = automatic_memory() / 2;
}

Machine measure_machine(const MeasureOptions& o) {
  const auto device = make_device(o);
  return measure_machine(o, *device);
}

Machine measure_machine(const MeasureOptions& o, gpu::Device& device) { return Measurement(o, device, base::detect_topology()).measure(); }

std::string machine_key(const MeasureOptions& o) {
  const HfConfig& c = o.config;
  std::ifstream mounts("/proc/self/mountinfo");
  const std::string mountinfo{std::istreambuf_iterator<char>(mounts), {}};
  std::vector<std::string> disks;
  for (const std::filesystem::path& directory : o.directories)
    disks.push_back(io::find_mount(mountinfo, std::filesystem::absolute(directory)).mount_point);
  return fmt::format(
      "profile {}|{}|{} cores|{} compute and {} optimizer threads|{}|hidden {} intermediate {} heads {} {} {} vocab "
      "{}{}|{} {} x {} chunk {}{}",
      kProfile, processor_name(), base::detect_topology().usable_cores(), o.compute_threads, o.optimizer_threads,
      fmt::join(disks, " "), c.hidden, c.intermediate, c.heads, c.kv_heads, c.head_dim, c.vocab,
      c.family == Family::gpt2 ? " gpt2" : "", offload::to_string(offload::number_type(o.schema)), o.micro_batch, o.sequence, o.loss_chunk,
      o.gpu.empty() ? "" : fmt::format("|{}{}", o.gpu, o.deterministic ? "" : ", any kernels"));
}

}  // namespace sluice::engine
