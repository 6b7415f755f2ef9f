// Collectives between the ranks of a run: the contract. One process (or thread) per rank, each with its own Comm.
//
// Data moves between device memories in the order of a gpu::Stream, the run's lane of communication: on the emulated device the
// stream's thread does the work, on CUDA NCCL's kernels are enqueued. Small things of the host (leaf sums, losses, agreement,
// failures) go through control().
//
// Implementations: self_comm.h (one rank), local_group.h (threads of a process), socket_comm.h (processes, TCP), mpi_comm.h (Open MPI),
// nccl_comm.h (CUDA). connect.h chooses. What a collective computes does not depend on which.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/comm/control.h"
#include "gpu/device.h"

namespace sluice::comm {

using gpu::WireType;

// A rank's share of a whole, in elements. May be empty; the parts of the ranks do not overlap and need not cover the whole.
struct Part {
  uint64_t first = 0, count = 0;
};

struct CommOptions {
  gpu::Device* device = nullptr;     // outlives the Comm. Contributions of the other ranks are staged in its memory
  uint64_t staging = 1 << 20;        // bytes of each other rank that a reduction works on at a time
  // Emulated network: bytes per second each way, and seconds of a collective before its bytes flow, once all ranks have come to it.
  // 0: as it is.
  double rate = 0, latency = 0;
};

// Device memory that a Comm takes, for the memory table.
constexpr uint64_t staging_bytes(int world, uint64_t staging) { return world > 1 ? static_cast<uint64_t>(world - 1) * staging : 0; }

// Payload that this rank has given to and got from others, as the formula counts it; and how long (emulated device only).
struct CommStats {
  uint64_t gathers = 0, gather_sent = 0, gather_received = 0;
  uint64_t reductions = 0, reduce_sent = 0, reduce_received = 0;
  double seconds = 0;  // the stream spent in collectives, waiting for slower ranks included
};

// What goes to and comes from one other rank in one exchange. Either may be empty.
struct Parcel {
  int peer = 0;
  const std::byte* send = nullptr;
  uint64_t send_bytes = 0;
  std::byte* receive = nullptr;
  uint64_t receive_bytes = 0;
};

// Every rank calls the same collectives with the same parts and types, in the same order, and on one stream: parts[r] is rank r's.
// Calls only enqueue. One host thread at a time. Memory given to a call stays alive and untouched (the result: unread) until an event recorded
// after it is reached.
//
// When a rank fails, is late or dies, the stream fails: its events rethrow Error(peer) that names the rank and its reason, on every
// other rank, within the deadline of the control channel. A Comm that has failed is only good for its destructor. The streams must have done
// its work (or failed) before it is destroyed.
class Comm {
 public:
  Comm(std::shared_ptr<Control> control, const CommOptions& options);
  virtual ~Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return control_->rank(); }
  int world() const { return control_->world(); }
  Control& control() { return *control_; }
  virtual std::string describe() const = 0;  // "4 ranks over Open MPI 4.1.4"

  // whole[parts[r]] = the shard of rank r, on every rank; what no part covers is left alone. Bit for bit. `shard` may be its place
  // in `whole`. With one part that is not empty this is a broadcast.
  void all_gather(gpu::Stream& stream, const std::byte* shard, std::byte* whole, std::span<const Part> parts, WireType type);

  // own = the sum over all ranks of whole[parts[rank()]]: fp32, in rank order, rounded once to own_type (gpu/rank_sum.h). `own` may be the
  // part's place in `whole` when the types are equal; other parts of `whole` are only read. In one rank: rounded once more.
  void reduce_scatter(gpu::Stream& stream, const std::byte* whole, std::byte* own, std::span<const Part> parts, WireType type,
                      WireType own_type);

  CommStats stats() const;  // since the start; from any thread

 protected:
  // Before the exchanges of a collective that moves anything.
  virtual void begin(gpu::Stream&) {}
  // All parcels at once, at most one for each other rank, in stream order. Both ends of a pair have one, or neither.
  virtual void exchange(gpu::Stream& stream, std::vector<Parcel> parcels) = 0;
  // The same for a gather whose parts lie one behind the other and are equally large; for implementations that have something better.
  virtual bool gather_even(gpu::Stream&, const std::byte*, std::byte*, uint64_t bytes_per_rank) { return (void)bytes_per_rank, false; }
  const CommOptions& options() const { return options_; }
  std::byte* staging() const { return staging_->data(); }  // of several ranks; staging_bytes()
  void add_seconds(double seconds);

 private:
  void check_parts(std::span<const Part> parts) const;

  const std::shared_ptr<Control> control_;
  const CommOptions options_;
  const std::unique_ptr<gpu::DeviceBuffer> staging_;
  struct Counters {
    std::atomic<uint64_t> gathers{0}, gather_sent{0}, gather_received{0}, reductions{0}, reduce_sent{0}, reduce_received{0};
    std::atomic<double> seconds{0};
  } counters_;
};

}  // namespace sluice::comm
