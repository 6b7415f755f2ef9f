// What this machine reaches, part by part, and how near that is to the part's own limit.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/sustained_rate.h"
#include "base/rounds.h"
#include "engine/comm/comm.h"
#include "engine/hf_config.h"
#include "gpu/device.h"
#include "offload/machine.h"

namespace sluice::apps {

struct BenchOptions {
  std::filesystem::path directory;  // on the disk to measure
  double seconds = 10;              // of a part
  int threads = 0;                  // of Adam and compute; 0: all that this process may use
  engine::HfConfig model;           // whose layer is computed
  bool strict = false;              // a disk queue that falls back is an error
};

// Units per second; of bytes unless a name says otherwise.
struct Rate {
  base::Rounds rounds;
  double limit = 0;  // of the same thing, measured in the same run; 0: none
  double value() const { return rounds.median(); }
  double share() const { return limit > 0 ? value() / limit : 0; }
};

struct DiskCell {
  uint64_t block = 0;
  unsigned depth = 0;
  double read = 0, write = 0;
};
struct DiskBench {
  std::string queue;
  uint64_t file_bytes = 0;
  Rate read, write, mixed;       // blocks of 4 MiB, 8 in flight; limit: the best of block size x depth. mixed: in sum
  std::vector<DiskCell> cells;   // the best was looked for among these
  std::vector<double> commits;   // seconds of a write of 4 KiB and fdatasync
  double flush = 0;              // seconds: of a write of 4 MiB and fdatasync, median
};
struct MemoryBench {
  Rate read, write, copy;  // all cores; limit: the best of the three. copy: read and written bytes
};
struct AdamBench {
  std::string kernel;
  Rate plain, hashed;  // parameters per second, without and with leaf checksums; limit: a stream of the same bytes
};
struct CopyBench {
  std::string device;
  Rate h2d, d2h;  // bytes of tiles; limit: what one thread's memcpy of the same bytes in memory reaches (emulated device)
};
struct ComputeBench {
  Rate step;  // FLOP per second of forward, backward and loss; limit: one matrix product of the layer's width
};
// Of the slowest rank, with all exchanging at once.
struct CommBench {
  std::string transport;  // "2 ranks over TCP, ..."
  uint64_t world = 0, on_this_host = 0;
  // Bytes that each rank receives from the others. Limit of a gather: what each rank copies within its memory while all do, where
  // all are on one host; of a reduction: the gather.
  Rate gather, reduce;
  double latency = 0;  // seconds of a gather of a few bytes
  double rate() const;  // the net.rate of a profile
};
// Everything at once, as a step does it. Units per second of each round.
struct TogetherBench {
  base::Rounds disk_read, disk_write, adam, h2d, d2h;
  double busy_cores = 0;  // processor seconds per second, of all of it
};

struct Bench {
  std::optional<MemoryBench> memory;
  std::optional<AdamBench> adam;
  std::optional<CopyBench> copy;
  std::optional<ComputeBench> compute;
  std::optional<DiskBench> disk;
  std::optional<SustainedRate> sustained;
  std::optional<TogetherBench> together;
  std::optional<CommBench> comm;
};

// Each about options.seconds. Errors: disk, host_memory.
MemoryBench bench_memory(const BenchOptions& options);
AdamBench bench_adam(const BenchOptions& options);
CopyBench bench_copy(const BenchOptions& options, gpu::Device& device);
ComputeBench bench_compute(const BenchOptions& options, gpu::Device& device);
DiskBench bench_disk(const BenchOptions& options);
TogetherBench bench_together(const BenchOptions& options, gpu::Device& device);
// Writes until the rate is flat and a file of a quarter of what is free (256 GiB at most) is written, or for so many seconds.
SustainedRate bench_sustained(const BenchOptions& options, double most_seconds);

// Collective; all ranks get the same. on_this_host: ranks that share its cores. Error(peer).
CommBench bench_comm(const BenchOptions& options, comm::Comm& ranks, uint64_t on_this_host, gpu::Device& device);

// The planning profile: what was measured in place of what `known` says. What neither says is unknown.
offload::Machine profile_of(const Bench& bench, const BenchOptions& options, offload::Machine known);

}  // namespace sluice::apps
