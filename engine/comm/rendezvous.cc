#include "engine/comm/rendezvous.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/comm/patience.h"

namespace sluice::comm {
namespace {

using base::ErrorKind;

constexpr double kAttempt = 2;  // seconds for one connection
constexpr int kPoll = 50;       // milliseconds
constexpr const char* kOtherRun = "another run listens there";

Frame hello(const ControlOptions& options) {
  Frame frame = text_frame(FrameKind::hello, options.job);
  frame.header.rank = options.rank;
  frame.header.sequence = static_cast<uint64_t>(options.world);
  return frame;
}

// The rest of the connection's life is short: it is written as far as the system takes it.
void refuse(FrameLink& link, const std::string& reason) {
  link.put(text_frame(FrameKind::refused, reason));
  link.flush();
}

class Host {
 public:
  explicit Host(const ControlOptions& options)
      : options_(options), links_(static_cast<size_t>(options.world)), missing_(options.world - 1) {
    const bool local = std::all_of(options.hosts.begin(), options.hosts.end(), is_loopback);
    listener_ = options.listener >= 0 ? Socket(options.listener) : listen_on(options.port, local);
    fcntl(listener_.fd(), F_SETFD, FD_CLOEXEC);  // one that was inherited goes no further
  }

  std::vector<FrameLink> run() {
    Patience patience(options_.connect_deadline);
    while (missing_ > 0) {
      if (patience.over()) give_up();
      wait();
      while (Socket socket = accept_from(listener_)) strangers_.emplace_back(std::move(socket));
      for (FrameLink& stranger : strangers_) greet(stranger);
      std::erase_if(strangers_, [](const FrameLink& link) { return !link.open(); });
    }
    for (FrameLink& link : links_)
      if (link.open()) link.put(text_frame(FrameKind::welcome, ""));
    return std::move(links_);
  }

 private:
  void wait() {
    std::vector<pollfd> polled{{listener_.fd(), POLLIN, 0}};
    for (const FrameLink& link : strangers_) polled.push_back({link.socket().fd(), POLLIN, 0});
    poll(polled.data(), polled.size(), kPoll);
  }

  void greet(FrameLink& link) {
    bool gone = false;
    const auto frame = link.get(&gone);
    if (gone) link.close();
    if (!frame) return;
    if (frame->header.kind != FrameKind::hello || text_of(*frame) != options_.job) {
      refuse(link, kOtherRun);
      return link.close();
    }
    const int rank = frame->header.rank, world = static_cast<int>(frame->header.sequence);
    if (world != options_.world)
      fail_all(link, fmt::format("rank 0 was started as one of {} ranks, rank {} as one of {}", options_.world, rank, world));
    if (rank <= 0 || rank >= world) fail_all(link, fmt::format("a rank {} among {} ranks", rank, world));
    FrameLink& place = links_[static_cast<size_t>(rank)];
    if (place.open()) fail_all(link, fmt::format("two processes were started as rank {}", rank));
    place = std::move(link);
    link.close();
    --missing_;
  }

  [[noreturn]] void fail_all(FrameLink& newcomer, const std::string& reason) {
    refuse(newcomer, reason);
    for (FrameLink& link : links_)
      if (link.open()) refuse(link, reason);
    base::fail(ErrorKind::config, "{}; check RANK and WORLD_SIZE", reason);
  }

  [[noreturn]] void give_up() {
    std::string list;
    for (int rank = 1; rank < options_.world; ++rank)
      if (!links_[static_cast<size_t>(rank)].open()) list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
    const std::string reason = fmt::format("after {:.0f} s not all of {} ranks have come; missing: {}", options_.connect_deadline,
                                           options_.world, list);
    for (FrameLink& link : links_)
      if (link.open()) refuse(link, reason);
    base::fail(ErrorKind::peer, "{}. See what they print; have they the same MASTER_ADDR and MASTER_PORT, and no firewall between?", reason);
  }

  const ControlOptions& options_;
  Socket listener_;
  std::vector<FrameLink> links_;      // by rank
  std::vector<FrameLink> strangers_;  // have not said who they are
  int missing_;
};

// Whether rank 0 has all ranks now.
bool welcomed(FrameLink& link, Patience& patience, std::string* why) {
  for (;;) {
    bool gone = false;
    if (const auto frame = link.get(&gone)) {
      if (frame->header.kind == FrameKind::welcome) return true;
      *why = text_of(*frame);
      // Another run's rank 0 may give way to ours; what ours says is final.
      if (*why == kOtherRun) return false;
      base::fail(ErrorKind::peer, "rank 0 refuses this rank: {}", *why);
    }
    if (gone) return *why = "the connection was closed", false;
    if (patience.over()) return *why = "it has not answered", false;
    pollfd wait{link.socket().fd(), POLLIN, 0};
    poll(&wait, 1, kPoll);
  }
}

std::vector<FrameLink> join(const ControlOptions& options) {
  Patience patience(options.connect_deadline);
  std::string why = "no address";
  while (!patience.over()) {
    for (const std::string& host : options.hosts) {
      std::string reason;
      FrameLink link(connect_to(host, options.port, kAttempt, &reason));
      if (link.open()) {
        link.put(hello(options));
        if (link.flush() && welcomed(link, patience, &reason)) {
          std::vector<FrameLink> links;
          links.push_back(std::move(link));
          return links;
        }
      }
      why = fmt::format("{}: {}", host, reason);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kPoll));
  }
  base::fail(ErrorKind::peer, "rank {} cannot reach rank 0 on port {} within {:.0f} s ({}). Does rank 0 run, and is MASTER_ADDR its host, "
             "MASTER_PORT the same on all ranks and open between them?", options.rank, options.port, options.connect_deadline, why);
}

}  // namespace

std::vector<FrameLink> meet(const ControlOptions& options) { return options.rank == 0 ? Host(options).run() : join(options); }

}  // namespace sluice::comm
