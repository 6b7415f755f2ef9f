#include "engine/comm/nccl_comm.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "engine/comm/nccl_watch.h"

namespace sluice::comm {
namespace {

using base::ErrorKind;

constexpr int kOldest = NCCL_VERSION(2, 28, 0);
constexpr uint64_t kGreeting = 16;  // bytes that each pair exchanges once, so that connections are there before the first step

// NCCL hangs or crashes when two ranks have one GPU.
void check_gpus(Control& control, int device) {
  char bus[32] = "", host[256] = "";
  nccl::check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "cudaDeviceGetPCIBusId");
  gethostname(host, sizeof host - 1);
  const auto all = control.gather(Topic::connect, fmt::format("GPU {} of {}", bus, host));
  for (size_t r = 0; r < all.size(); ++r)
    for (size_t other = r + 1; other < all.size(); ++other)
      if (all[r] == all[other])
        base::fail(ErrorKind::config, "ranks {} and {} both have {}; each rank needs a GPU of its own: start fewer ranks", r, other, all[r]);
}

// Ends the watch before what it watches for is gone, also when the constructor of its owner throws.
class WatchOwner {
 public:
  ~WatchOwner() {
    if (watch_) watch_->finish(false);
  }
  void reset(std::shared_ptr<NcclWatch> watch) {
    watch_ = std::move(watch);
    watch_->start();
  }
  NcclWatch* operator->() const { return watch_.get(); }

 private:
  std::shared_ptr<NcclWatch> watch_;
};

class NcclComm final : public Comm {
 public:
  NcclComm(std::shared_ptr<MpiSession> session, std::shared_ptr<Control> channel, const CommOptions& options)
      : Comm(std::move(channel), options), session_(std::move(session)) {
    if (options.rate > 0 || options.latency > 0)
      base::fail(ErrorKind::config, "machine.links.net slows the network of emulated devices only");
    int version = 0;
    nccl::check(ncclGetVersion(&version), "ncclGetVersion");
    if (version < kOldest)
      base::fail(ErrorKind::config, "NCCL is of version {}, needed is 2.28 ({}) or newer", version, static_cast<int>(kOldest));
    nccl::check(cudaSetDevice(options.device->index()), "cudaSetDevice");
    check_gpus(control(), options.device->index());
    watch_.reset(std::make_shared<NcclWatch>(control(), connect()));
    greet();
  }

  ~NcclComm() override {
    watch_->finish(control().closed() && !control().failed());
    if (session_ && control().closed() && !control().failed()) session_->set_orderly();
  }

  std::string describe() const override {
    int version = 0;
    ncclGetVersion(&version);
    return fmt::format("{} ranks over NCCL {}.{}.{}", world(), version / 10000, version / 100 % 100, version % 100);
  }

 private:
  // Rank 0's identifier reaches the others over the control channel. Non-blocking: the call returns at once, the watch waits for it.
  ncclComm_t connect() {
    ncclUniqueId id{};
    if (rank() == 0) nccl::check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    const auto ids = control().gather(Topic::connect, std::as_bytes(std::span(&id, 1)));
    SLUICE_CHECK(ids[0].size() == sizeof id);
    std::memcpy(&id, ids[0].data(), sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    nccl::check(ncclCommInitRankConfig(&comm, world(), id, rank(), &config), "ncclCommInitRankConfig", comm);
    return comm;
  }

  // NCCL connects two ranks at their first operation: now, not in the first step.
  void greet() {
    watch_->settle("ncclCommInitRankConfig");
    const auto stream = options().device->create_stream("nccl");
    const auto memory = options().device->allocate((static_cast<uint64_t>(world()) + 1) * kGreeting, "communication");
    std::byte* const out = memory->data();
    std::byte* const in = out + kGreeting;
    std::vector<Parcel> parcels;
    for (int r = 0; r < world(); ++r)
      if (r != rank()) parcels.push_back({r, out, kGreeting, in + static_cast<uint64_t>(r) * kGreeting, kGreeting});
    if (!parcels.empty()) exchange(*stream, std::move(parcels));
    gather_even(*stream, out, in, kGreeting);
    const gpu::Event done = stream->record();
    while (!done.reached()) {
      control().check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    stream->synchronize();
  }

  void exchange(gpu::Stream& stream, std::vector<Parcel> parcels) override {
    enqueue(stream, [this, parcels = std::move(parcels), native = static_cast<cudaStream_t>(stream.native())] {
      watch_->group("ncclSend and ncclRecv", [&](ncclComm_t comm) {
        ncclResult_t first = ncclSuccess;
        const auto note = [&](ncclResult_t result) {
          if (first == ncclSuccess && result != ncclInProgress) first = result;
        };
        for (const Parcel& p : parcels) {
          if (p.send_bytes > 0) note(ncclSend(p.send, p.send_bytes, ncclUint8, p.peer, comm, native));
          if (p.receive_bytes > 0) note(ncclRecv(p.receive, p.receive_bytes, ncclUint8, p.peer, comm, native));
        }
        return first;
      });
    });
  }

  bool gather_even(gpu::Stream& stream, const std::byte* shard, std::byte* whole, uint64_t bytes) override {
    enqueue(stream, [this, shard, whole, bytes, native = static_cast<cudaStream_t>(stream.native())] {
      watch_->group("ncclAllGather", [&](ncclComm_t comm) { return ncclAllGather(shard, whole, bytes, ncclUint8, comm, native); });
    });
    return true;
  }

  // Between two events, by which the watch sees whether the device waits for another rank.
  void enqueue(gpu::Stream& stream, std::function<void()> work) {
    gpu::Event before = stream.record();
    stream.enqueue(std::move(work));
    watch_->add(std::move(before), stream.record());
  }

  const std::shared_ptr<MpiSession> session_;
  WatchOwner watch_;
};

}  // namespace

namespace nccl {

void check(ncclResult_t result, const char* call, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* last = ncclGetLastError(comm);
  base::fail(ErrorKind::peer, "{}: {} ({}); NCCL_DEBUG=INFO says more", call, ncclGetErrorString(result), last == nullptr ? "" : last);
}

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // out of the thread's state
  base::fail(ErrorKind::config, "{}: {}", call, cudaGetErrorString(result));
}

}  // namespace nccl

std::unique_ptr<Comm> make_nccl_comm(std::shared_ptr<MpiSession> session, std::shared_ptr<Control> control, const CommOptions& options) {
  return std::make_unique<NcclComm>(std::move(session), std::move(control), options);
}

}  // namespace sluice::comm
