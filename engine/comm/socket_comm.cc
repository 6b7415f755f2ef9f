#include "engine/comm/socket_comm.h"

#include <poll.h>

#include <vector>

#include "base/error.h"
#include "engine/comm/direct_copy.h"
#include "engine/comm/host_comm.h"
#include "engine/comm/patience.h"
#include "engine/comm/socket_mesh.h"

namespace sluice::comm {
namespace {

constexpr int kPoll = 50;  // milliseconds

// Before the bytes of a parcel: both ends must mean the same one.
struct ParcelHeader {
  uint32_t magic = 0x736c6433;
  uint32_t number = 0;   // between these two ranks
  uint64_t bytes = 0;
  uint64_t address = 0;  // of the bytes, for a reader that copies them itself
};

constexpr uint64_t kTaken = 1;  // bytes: tells the owner that its memory has been read

// A parcel on its way. In each direction the socket carries the header, then the bytes, unless the receiver reads them itself; and at last,
// where this end has read the other's memory, that it has.
struct Flow {
  Parcel parcel;
  const Socket* socket;
  bool read_by_peer, read_by_us;
  ParcelHeader out, in;
  std::byte taken_out{1}, taken_in{0};
  uint64_t sent = 0, received = 0;  // by the socket
  uint64_t read = 0;                // of the other's memory

  uint64_t out_bytes() const { return sizeof out + (read_by_peer ? 0 : parcel.send_bytes); }
  uint64_t in_bytes() const { return sizeof in + (read_by_us ? 0 : parcel.receive_bytes); }
  bool reading() const { return read_by_us && received >= sizeof in && read < parcel.receive_bytes; }
  bool done() const {
    return sent == out_bytes() + (read_by_us ? kTaken : 0) && received == in_bytes() + (read_by_peer ? kTaken : 0);
  }
};

// Empty: nothing now.
std::span<const std::byte> to_send(const Flow& f) {
  if (f.sent < sizeof f.out) return std::as_bytes(std::span(&f.out, 1)).subspan(f.sent);
  if (f.sent < f.out_bytes()) return std::span(f.parcel.send, f.parcel.send_bytes).subspan(f.sent - sizeof f.out);
  const bool told = f.sent > f.out_bytes() || !f.read_by_us;
  if (told || f.received < sizeof f.in || f.reading()) return {};
  return {&f.taken_out, kTaken};
}

std::span<std::byte> to_receive(Flow& f) {
  if (f.received < sizeof f.in) return std::as_writable_bytes(std::span(&f.in, 1)).subspan(f.received);
  if (f.received < f.in_bytes()) return std::span(f.parcel.receive, f.parcel.receive_bytes).subspan(f.received - sizeof f.in);
  if (f.received > f.in_bytes() || !f.read_by_peer) return {};
  return {&f.taken_in, kTaken};
}

class SocketTransport final : public Transport {
 public:
  SocketTransport(Control& control, bool direct)
      : control_(control), sockets_(connect_mesh(control)), direct_(control, direct), numbers_(sockets_.size()) {}
  std::string describe() const override { return direct_.any() ? "TCP, copied directly between processes of a host" : "TCP"; }

  void exchange(std::span<const Parcel> parcels) override {
    std::vector<Flow> flows;
    for (const Parcel& p : parcels) {
      const auto peer = static_cast<size_t>(p.peer);
      flows.push_back({.parcel = p,
                       .socket = &sockets_[peer],
                       .read_by_peer = direct_.may_read(p.peer, control_.rank()),
                       .read_by_us = direct_.may_read(control_.rank(), p.peer),
                       .out = {.number = numbers_[peer]++, .bytes = p.send_bytes, .address = reinterpret_cast<uint64_t>(p.send)}});
    }
    Patience patience(control_.deadline());
    while (wait(flows)) {
      bool moved = false;
      for (Flow& f : flows) moved |= send(f) | receive(f) | read(f);
      if (moved) patience.reset();
      control_.check();
      if (patience.over()) give_up(flows);
    }
  }

 private:
  // Until something can move. False: all is done.
  static bool wait(std::vector<Flow>& flows) {
    std::vector<pollfd> polled;
    bool all_done = true, reading = false;
    for (Flow& f : flows) {
      const int events = (to_send(f).empty() ? 0 : POLLOUT) | (to_receive(f).empty() ? 0 : POLLIN);
      if (events != 0) polled.push_back({f.socket->fd(), static_cast<int16_t>(events), 0});
      reading = reading || f.reading();
      all_done = all_done && f.done();
    }
    if (!all_done && !reading) poll(polled.data(), polled.size(), kPoll);
    return !all_done;
  }

  bool send(Flow& f) {
    bool moved = false;
    for (auto bytes = to_send(f); !bytes.empty(); bytes = to_send(f)) {
      const auto count = send_some(*f.socket, bytes);
      if (!count) lost(f);
      if (*count == 0) break;
      f.sent += *count;
      moved = true;
    }
    return moved;
  }

  bool receive(Flow& f) {
    bool moved = false;
    for (auto bytes = to_receive(f); !bytes.empty(); bytes = to_receive(f)) {
      const auto count = receive_some(*f.socket, bytes);
      if (!count) lost(f);
      if (*count == 0) break;
      f.received += *count;
      moved = true;
      if (f.received == sizeof f.in) check_header(f);
    }
    return moved;
  }

  // A piece, so that the sockets get their turn.
  bool read(Flow& f) {
    if (!f.reading()) return false;
    const auto count = direct_.read(f.parcel.peer, f.in.address + f.read, f.parcel.receive + f.read, f.parcel.receive_bytes - f.read);
    if (!count) lost(f);
    f.read += *count;
    return true;
  }

  void check_header(const Flow& f) const {
    SLUICE_CHECK(f.in.magic == f.out.magic && f.in.number == f.out.number,
                 fmt::format("ranks {} and {} are in different collectives", control_.rank(), f.parcel.peer));
    SLUICE_CHECK(f.in.bytes == f.parcel.receive_bytes,
                 fmt::format("rank {} sends {} bytes where {} are expected", f.parcel.peer, f.in.bytes, f.parcel.receive_bytes));
  }

  [[noreturn]] void lost(const Flow& f) { control_.throw_failure({f.parcel.peer, base::ErrorKind::peer, "its connection has ended"}); }

  [[noreturn]] void give_up(const std::vector<Flow>& flows) {
    int late = -1;
    for (const Flow& f : flows)
      if (late < 0 && !f.done()) late = f.parcel.peer;
    control_.throw_failure({late, base::ErrorKind::peer,
                            fmt::format("rank {} has waited for its data for {:.0f} s", control_.rank(), control_.deadline())});
  }

  Control& control_;
  const std::vector<Socket> sockets_;  // by rank
  const DirectCopy direct_;
  std::vector<uint32_t> numbers_;      // by rank: of the next parcel
};

}  // namespace

std::unique_ptr<Comm> make_socket_comm(std::shared_ptr<Control> control, const CommOptions& options, bool direct) {
  if (control->world() == 1) return make_self_comm(options);
  auto transport = std::make_unique<SocketTransport>(*control, direct);
  return make_host_comm(std::move(control), std::move(transport), options);
}

}  // namespace sluice::comm
