#include "engine/comm/socket_mesh.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "engine/comm/frame.h"
#include "engine/comm/patience.h"

namespace sluice::comm {
namespace {

constexpr double kAttempt = 2;  // seconds for one connection
constexpr int kPoll = 50;       // milliseconds

// Equal for processes that reach each other by loopback: the same kernel and network namespace.
std::string own_network() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  std::error_code error;
  return boot + " " + std::filesystem::read_symlink("/proc/self/ns/net", error).string();
}

struct Address {
  uint16_t port = 0;
  std::vector<std::string> hosts;
};

std::string to_text(const Address& address) {
  std::string text = std::to_string(address.port);
  for (const std::string& host : address.hosts) text += "\n" + host;
  return text;
}

Address from_text(const std::string& text) {
  Address address;
  size_t begin = 0;
  for (size_t end = 0; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (begin == 0) std::from_chars(line.data(), line.data() + line.size(), address.port);
    else address.hosts.push_back(line);
  }
  return address;
}

class Mesh {
 public:
  explicit Mesh(Control& control) : control_(control), sockets_(static_cast<size_t>(control.world())) {
    const auto networks = control.gather(Topic::connect, own_network());
    const std::string& own = networks[static_cast<size_t>(control.rank())];
    const bool local = std::all_of(networks.begin(), networks.end(), [&](const std::string& n) { return n == own; });
    listener_ = listen_on(0, local);
    const Address address{port_of(listener_), local ? std::vector<std::string>{"127.0.0.1"} : own_addresses()};
    for (const std::string& text : control.gather(Topic::connect, to_text(address))) addresses_.push_back(from_text(text));
    for (size_t r = 0; r < networks.size(); ++r)  // loopback first where it leads there, and nowhere else
      if (networks[r] == own) addresses_[r].hosts.insert(addresses_[r].hosts.begin(), "127.0.0.1");
      else std::erase_if(addresses_[r].hosts, is_loopback);
  }

  std::vector<Socket> connect() {
    for (int peer = 0; peer < control_.rank(); ++peer) sockets_[static_cast<size_t>(peer)] = reach(peer);
    Patience patience(control_.deadline());
    for (int missing = control_.world() - 1 - control_.rank(); missing > 0;) {
      check(patience);
      missing -= accept();
    }
    control_.barrier(Topic::connect);
    return std::move(sockets_);
  }

 private:
  // Ranks connect to those before them, and say who they are.
  Socket reach(int peer) {
    const Address& address = addresses_[static_cast<size_t>(peer)];
    Patience patience(control_.deadline());
    std::string why = "no address";
    for (;;) {
      for (const std::string& host : address.hosts) {
        control_.check();
        FrameLink link(connect_to(host, address.port, kAttempt, &why));
        if (!link.open()) continue;
        Frame hello = text_frame(FrameKind::hello, control_.job());
        hello.header.rank = control_.rank();
        link.put(hello);
        if (link.flush() && !link.pending()) return link.take();
      }
      if (patience.over())
        control_.throw_failure({peer, base::ErrorKind::peer, fmt::format("rank {} cannot connect to it on port {}: {}", control_.rank(), address.port, why)});
      poll(nullptr, 0, kPoll);
    }
  }

  int accept() {
    std::vector<pollfd> polled{{listener_.fd(), POLLIN, 0}};
    for (const FrameLink& link : strangers_) polled.push_back({link.socket().fd(), POLLIN, 0});
    poll(polled.data(), polled.size(), kPoll);
    while (Socket socket = accept_from(listener_)) strangers_.emplace_back(std::move(socket));
    int found = 0;
    for (FrameLink& link : strangers_) {
      bool gone = false;
      const auto frame = link.get(&gone);
      if (gone) link.close();
      if (!frame) continue;
      const int rank = frame->header.rank;
      const bool known = frame->header.kind == FrameKind::hello && text_of(*frame) == control_.job() && rank > control_.rank() && rank < control_.world();
      if (known && !sockets_[static_cast<size_t>(rank)]) {
        sockets_[static_cast<size_t>(rank)] = link.take();
        ++found;
      }
      link.close();
    }
    std::erase_if(strangers_, [](const FrameLink& link) { return !link.open(); });
    return found;
  }

  void check(Patience& patience) {
    control_.check();
    if (!patience.over()) return;
    int missing = control_.rank() + 1;
    while (sockets_[static_cast<size_t>(missing)]) ++missing;
    control_.throw_failure({missing, base::ErrorKind::peer, fmt::format("it has not connected to rank {}", control_.rank())});
  }

  Control& control_;
  Socket listener_;
  std::vector<Address> addresses_;
  std::vector<Socket> sockets_;
  std::vector<FrameLink> strangers_;
};

}  // namespace

std::vector<Socket> connect_mesh(Control& control) { return Mesh(control).connect(); }

}  // namespace sluice::comm
