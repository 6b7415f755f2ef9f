#include "engine/machine_measure.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/other_load.h"
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

using base::Rounds;
using offload::Machine;

constexpr int kProfile = 2;      // raised when a profile's rates mean something else, or are measured in another way
constexpr int kRounds = 3;
constexpr double kDisagree = 0.3;  // spread of the rounds, or share of the processors that others use: the machine is busy

class Measurement {
 public:
  Measurement(const MeasureOptions& options, const base::Topology& topology)
      : options_(options),
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
  void copies(gpu::Device& device);
  void compute(gpu::Device& device);
  std::string disturbance() const;

  const MeasureOptions& options_;
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

void Measurement::copies(gpu::Device& device) {
  CopyWork work(device);
  machine_.h2d = rate("copy.h2d", 2.0 * kRateTile, each_ / 2, [&] { work.in(); });
  machine_.d2h = rate("copy.d2h", 2.0 * kRateTile, each_ / 2, [&] { work.out(); });
}

void Measurement::compute(gpu::Device& device) {
  MeasureOptions round = options_;
  round.seconds = each_;
  machine_.compute = rate("compute", measure_compute(round, device, kRounds));
}

std::string Measurement::disturbance() const {
  if (const double share = others_.share(); share > kDisagree) return fmt::format("other processes took {:.0f} % of the processors", 100 * share);
  if (spread_ > kDisagree) return fmt::format("{} differed by {:.0f} % between rounds", spreading_, 100 * spread_);
  return "";
}

Machine Measurement::measure() {
  describe_emulated(machine_, cores_);
  if (!options_.directories.empty()) disk();
  adam();
  dram();
  gpu::EmulatedOptions emulated;
  emulated.memory = automatic_memory();
  emulated.compute_threads = options_.compute_threads;
  const auto device = gpu::make_emulated_device(emulated);
  copies(*device);
  compute(*device);
  machine_.busy = disturbance();
  return machine_;
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

Machine measure_machine(const MeasureOptions& o) { return Measurement(o, base::detect_topology()).measure(); }

std::string machine_key(const MeasureOptions& o) {
  const HfConfig& c = o.config;
  std::ifstream mounts("/proc/self/mountinfo");
  const std::string mountinfo{std::istreambuf_iterator<char>(mounts), {}};
  std::vector<std::string> disks;
  for (const std::filesystem::path& directory : o.directories)
    disks.push_back(io::find_mount(mountinfo, std::filesystem::absolute(directory)).mount_point);
  return fmt::format(
      "profile {}|{}|{} cores|{} compute and {} optimizer threads|{}|hidden {} intermediate {} heads {} {} {} vocab "
      "{}{}|{} {} x {} chunk {}",
      kProfile, processor_name(), base::detect_topology().usable_cores(), o.compute_threads, o.optimizer_threads,
      fmt::join(disks, " "), c.hidden, c.intermediate, c.heads, c.kv_heads, c.head_dim, c.vocab,
      c.family == Family::gpt2 ? " gpt2" : "", offload::to_string(offload::number_type(o.schema)), o.micro_batch, o.sequence, o.loss_chunk);
}

}  // namespace sluice::engine
