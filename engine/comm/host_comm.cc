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
  HostComm(std::shared_ptr<Control> control, std::unique_ptr<Transport> transport, const CommOptions& options)
      : Comm(std::move(control), options), transport_(std::move(transport)) {
    SLUICE_CHECK(options.device->kind() == gpu::DeviceKind::cpu, "the host cannot reach this device's memory");
  }

  std::string describe() const override { return fmt::format("{} ranks over {}", world(), transport_->describe()); }

 private:
  bool emulates() const { return options().rate > 0 || options().latency > 0; }

  void begin(gpu::Stream& stream) override {
    if (emulates()) stream.enqueue([this] { meet(); });
  }

  void exchange(gpu::Stream& stream, std::vector<Parcel> parcels) override {
    stream.enqueue([this, parcels = std::move(parcels)] { run(parcels); });
  }

  // No byte flows before both ends are there, so the emulated network's time must not pass while a rank waits for another one.
  void meet() {
    const auto start = Clock::now();
    std::vector<std::byte> theirs(static_cast<size_t>(world()));
    const std::byte ours{};
    std::vector<Parcel> greetings;
    for (int r = 0; r < world(); ++r)
      if (r != rank()) greetings.push_back({r, &ours, 1, &theirs[static_cast<size_t>(r)], 1});
    move(greetings);
    due_ = Clock::now() + duration(options().latency);
    add_seconds(Seconds(Clock::now() - start).count());
  }

  void run(const std::vector<Parcel>& parcels) {
    const auto start = Clock::now();
    move(parcels);
    if (emulates()) {
      due_ += transfer_time(parcels);
      std::this_thread::sleep_until(due_);
    }
    add_seconds(Seconds(Clock::now() - start).count());
  }

  void move(const std::vector<Parcel>& parcels) {
    try {
      transport_->exchange(parcels);
    } catch (const base::Error& error) {
      if (error.kind() != base::ErrorKind::peer) control().fail(error.kind(), error.what());
      throw;
    }
  }

  // Of a rank's own link, which carries both directions at once.
  Clock::duration transfer_time(const std::vector<Parcel>& parcels) const {
    uint64_t sent = 0, received = 0;
    for (const Parcel& p : parcels) sent += p.send_bytes, received += p.receive_bytes;
    return duration(options().rate > 0 ? static_cast<double>(std::max(sent, received)) / options().rate : 0);
  }

  static Clock::duration duration(double seconds) { return std::chrono::duration_cast<Clock::duration>(Seconds(seconds)); }

  Clock::time_point due_;  // when the emulated network is done with the collective so far; on the stream
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

std::unique_ptr<Comm> make_host_comm(std::shared_ptr<Control> control, std::unique_ptr<Transport> transport, const CommOptions& options) {
  return std::make_unique<HostComm>(std::move(control), std::move(transport), options);
}

std::unique_ptr<Comm> make_self_comm(const CommOptions& options) { return std::make_unique<SelfComm>(options); }

}  // namespace sluice::comm
