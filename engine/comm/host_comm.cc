#include "engine/comm/host_comm.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"

namespace sluice::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

class HostComm final : public Comm {
 public:
  HostComm(std::unique_ptr<Control> control, std::unique_ptr<Transport> transport, const CommOptions& options)
      : Comm(std::move(control), options), transport_(std::move(transport)) {
    SLUICE_CHECK(options.device->kind() == gpu::DeviceKind::cpu, "the host cannot reach this device's memory");
  }

  std::string describe() const override { return fmt::format("{} ranks over {}", world(), transport_->describe()); }

 private:
  void exchange(gpu::Stream& stream, std::vector<Parcel> parcels) override {
    stream.enqueue([this, parcels = std::move(parcels)] { run(parcels); });
  }

  void run(const std::vector<Parcel>& parcels) {
    const auto start = Clock::now();
    try {
      transport_->exchange(parcels);
    } catch (const base::Error& error) {
      if (error.kind() != base::ErrorKind::peer) control().fail(error.kind(), error.what());
      throw;
    }
    if (options().rate > 0 || options().latency > 0) std::this_thread::sleep_until(start + emulated_time(parcels));
    add_seconds(Seconds(Clock::now() - start).count());
  }

  // Of a rank's own link, which carries both directions at once.
  Clock::duration emulated_time(const std::vector<Parcel>& parcels) const {
    uint64_t sent = 0, received = 0;
    for (const Parcel& p : parcels) sent += p.send_bytes, received += p.receive_bytes;
    const double transfer = options().rate > 0 ? static_cast<double>(std::max(sent, received)) / options().rate : 0;
    return std::chrono::duration_cast<Clock::duration>(Seconds(options().latency + transfer));
  }

  const std::unique_ptr<Transport> transport_;
};

class SelfComm final : public Comm {
 public:
  explicit SelfComm(const CommOptions& options) : Comm(std::make_unique<Control>(ControlOptions{}), options) {}
  std::string describe() const override { return "1 rank"; }

 private:
  void exchange(gpu::Stream&, std::vector<Parcel>) override { base::fail(base::ErrorKind::bug, "one rank has no other"); }
};

}  // namespace

std::unique_ptr<Comm> make_host_comm(std::unique_ptr<Control> control, std::unique_ptr<Transport> transport, const CommOptions& options) {
  return std::make_unique<HostComm>(std::move(control), std::move(transport), options);
}

std::unique_ptr<Comm> make_self_comm(const CommOptions& options) { return std::make_unique<SelfComm>(options); }

}  // namespace sluice::comm
