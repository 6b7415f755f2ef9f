#include "engine/comm/socket_comm.h"

#include <poll.h>

#include <vector>

#include "base/error.h"
#include "engine/comm/host_comm.h"
#include "engine/comm/patience.h"
#include "engine/comm/socket_mesh.h"

namespace sluice::comm {
namespace {

constexpr int kPoll = 50;  // milliseconds

// Before the bytes of a parcel: both ends must mean the same one.
struct ParcelHeader {
  uint32_t magic = 0x736c6432;
  uint32_t number = 0;  // between these two ranks
  uint64_t bytes = 0;
};

// A parcel on its way.
struct Flow {
  Parcel parcel;
  const Socket* socket;
  ParcelHeader out, in;
  uint64_t sent = 0, received = 0;  // headers included

  bool sending() const { return sent < sizeof out + parcel.send_bytes; }
  bool receiving() const { return received < sizeof in + parcel.receive_bytes; }
};

std::span<const std::byte> to_send(const Flow& f) {
  if (f.sent < sizeof f.out) return std::as_bytes(std::span(&f.out, 1)).subspan(f.sent);
  return std::span(f.parcel.send, f.parcel.send_bytes).subspan(f.sent - sizeof f.out);
}

std::span<std::byte> to_receive(Flow& f) {
  if (f.received < sizeof f.in) return std::as_writable_bytes(std::span(&f.in, 1)).subspan(f.received);
  return std::span(f.parcel.receive, f.parcel.receive_bytes).subspan(f.received - sizeof f.in);
}

class SocketTransport final : public Transport {
 public:
  explicit SocketTransport(Control& control) : control_(control), sockets_(connect_mesh(control)), numbers_(sockets_.size()) {}
  std::string describe() const override { return "TCP"; }

  void exchange(std::span<const Parcel> parcels) override {
    std::vector<Flow> flows;
    for (const Parcel& p : parcels) {
      const auto peer = static_cast<size_t>(p.peer);
      flows.push_back({.parcel = p, .socket = &sockets_[peer], .out = {.number = numbers_[peer]++, .bytes = p.send_bytes}});
    }
    Patience patience(control_.deadline());
    while (wait(flows)) {
      bool moved = false;
      for (Flow& f : flows) moved |= send(f) | receive(f);
      if (moved) patience.reset();
      control_.check();
      if (patience.over()) give_up(flows);
    }
  }

 private:
  // Until something can move. False: all is done.
  static bool wait(const std::vector<Flow>& flows) {
    std::vector<pollfd> polled;
    for (const Flow& f : flows) {
      const int events = (f.sending() ? POLLOUT : 0) | (f.receiving() ? POLLIN : 0);
      if (events != 0) polled.push_back({f.socket->fd(), static_cast<int16_t>(events), 0});
    }
    if (!polled.empty()) poll(polled.data(), polled.size(), kPoll);
    return !polled.empty();
  }

  bool send(Flow& f) {
    bool moved = false;
    while (f.sending()) {
      const auto bytes = send_some(*f.socket, to_send(f));
      if (!bytes) lost(f);
      if (*bytes == 0) break;
      f.sent += *bytes;
      moved = true;
    }
    return moved;
  }

  bool receive(Flow& f) {
    bool moved = false;
    while (f.receiving()) {
      const auto bytes = receive_some(*f.socket, to_receive(f));
      if (!bytes) lost(f);
      if (*bytes == 0) break;
      f.received += *bytes;
      moved = true;
      if (f.received == sizeof f.in) check_header(f);
    }
    return moved;
  }

  void check_header(const Flow& f) const {
    SLUICE_CHECK(f.in.magic == f.out.magic && f.in.number == f.out.number, fmt::format("ranks {} and {} are in different collectives", control_.rank(), f.parcel.peer));
    SLUICE_CHECK(f.in.bytes == f.parcel.receive_bytes, fmt::format("rank {} sends {} bytes where {} are expected", f.parcel.peer, f.in.bytes, f.parcel.receive_bytes));
  }

  [[noreturn]] void lost(const Flow& f) { control_.throw_failure({f.parcel.peer, base::ErrorKind::peer, "its connection has ended"}); }

  [[noreturn]] void give_up(const std::vector<Flow>& flows) {
    int late = -1;
    for (const Flow& f : flows)
      if (late < 0 && (f.receiving() || f.sending())) late = f.parcel.peer;
    control_.throw_failure({late, base::ErrorKind::peer, fmt::format("rank {} has waited for its data for {:.0f} s", control_.rank(), control_.deadline())});
  }

  Control& control_;
  const std::vector<Socket> sockets_;  // by rank
  std::vector<uint32_t> numbers_;      // by rank: of the next parcel
};

}  // namespace

std::unique_ptr<Comm> make_socket_comm(std::unique_ptr<Control> control, const CommOptions& options) {
  if (control->world() == 1) return make_self_comm(options);
  auto transport = std::make_unique<SocketTransport>(*control);
  return make_host_comm(std::move(control), std::move(transport), options);
}

}  // namespace sluice::comm
