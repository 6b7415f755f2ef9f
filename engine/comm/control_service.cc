#include "engine/comm/control_service.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace sluice::comm {
namespace {

using base::ErrorKind;
using std::chrono::duration;

constexpr int kTick = 50;              // milliseconds between looks at the clocks
constexpr double kGoodbye = 1.0;       // seconds for the last frames to arrive

double heartbeat_every(double deadline) { return std::min(1.0, deadline / 8); }

}  // namespace

ControlService::ControlService(const ControlOptions& options, std::vector<FrameLink> links)
    : options_(options), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), table_(options.world) {
  SLUICE_CHECK(wake_, "eventfd");
  for (size_t i = 0; i < links.size(); ++i)
    if (links[i].open()) links_.push_back({static_cast<int>(i), std::move(links[i]), Patience(options.deadline)});
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "control");
    loop();
  });
}

ControlService::~ControlService() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake();
  thread_.join();
}

void ControlService::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const auto ignored = write(wake_.fd(), &one, sizeof one);
}

ControlService::Parts ControlService::exchange(Topic topic, std::vector<std::byte> bytes, double deadline) {
  std::unique_lock lock(mutex_);
  const ExchangeKey key{static_cast<uint8_t>(topic), next_[static_cast<uint8_t>(topic)]++};
  if (options_.rank == 0) {
    contribute(key, 0, std::move(bytes), deadline);
  } else if (!failure_) {
    Frame frame;
    frame.header.kind = FrameKind::contribution;
    frame.header.topic = key.first;
    frame.header.sequence = key.second;
    frame.header.deadline = static_cast<float>(deadline);
    frame.payload = std::move(bytes);
    put_all(frame);
  }
  wake();
  changed_.wait(lock, [&] { return failure_ || results_.contains(key); });
  const auto found = results_.find(key);
  if (found == results_.end()) return {};
  Parts parts = std::move(found->second);
  results_.erase(found);
  return parts;
}

void ControlService::contribute(const ExchangeKey& key, int rank, std::vector<std::byte> bytes, double deadline) {
  if (failure_) return;
  auto all = table_.add(key, rank, std::move(bytes), deadline);
  if (!all) return;
  Frame frame;
  frame.header.kind = FrameKind::result;
  frame.header.topic = key.first;
  frame.header.sequence = key.second;
  frame.payload = pack(*all);
  put_all(frame);
  finish(key, std::move(*all));
}

void ControlService::finish(const ExchangeKey& key, Parts parts) {
  if (key.first == static_cast<uint8_t>(Topic::close)) closed_ = true;
  results_.emplace(key, std::move(parts));
  changed_.notify_all();
}

void ControlService::put_all(const Frame& frame) {
  for (Link& link : links_)
    if (!link.gone) link.frames.put(frame);
}

void ControlService::fail(const Failure& failure) {
  std::unique_lock lock(mutex_);
  set_failure(failure);
  wake();
  changed_.wait_for(lock, duration<double>(kGoodbye), [&] { return drained(); });
}

void ControlService::set_failure(const Failure& failure) {
  if (failure_ || closed_) return;
  failure_ = failure;
  for (Link& link : links_)
    if (!link.gone) send_failure(link.frames);
  due_ = callbacks_;
  changed_.notify_all();
}

void ControlService::send_failure(FrameLink& link) const {
  Frame frame = text_frame(FrameKind::failure, failure_->reason);
  frame.header.rank = failure_->rank;
  frame.header.exit_code = static_cast<uint16_t>(failure_->kind);
  link.put(frame);
}

bool ControlService::drained() const {
  return std::all_of(links_.begin(), links_.end(), [](const Link& link) { return link.gone || !link.frames.pending(); });
}

std::optional<Failure> ControlService::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ControlService::wait_for_failure(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, duration<double>(seconds), [&] { return failure_.has_value(); });
}

void ControlService::set_progress(uint64_t begun) {
  const std::lock_guard lock(mutex_);
  progress_ = begun;
}

int ControlService::laggard() const {
  const std::lock_guard lock(mutex_);
  const auto least = std::min_element(links_.begin(), links_.end(), [](const Link& a, const Link& b) { return a.progress < b.progress; });
  return least != links_.end() && least->progress < progress_ ? least->rank : -1;
}

bool ControlService::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

// The handle keeps the call alive; the service only looks.
std::shared_ptr<void> ControlService::on_failure(std::function<void()> call) {
  auto owned = std::make_shared<std::function<void()>>(std::move(call));
  // The last owner waits for callbacks at work.
  std::shared_ptr<void> handle(owned.get(), [this, owned](void*) mutable {
    const std::lock_guard calling(calling_);
    owned.reset();
  });
  const std::lock_guard lock(mutex_);
  callbacks_.emplace_back(owned);
  if (failure_) due_.emplace_back(owned);
  wake();
  return handle;
}

void ControlService::call_back(std::unique_lock<std::mutex>& lock) {
  if (due_.empty()) return;
  const auto due = std::exchange(due_, {});
  lock.unlock();
  {
    const std::lock_guard calling(calling_);
    for (const auto& weak : due)
      if (const auto call = weak.lock()) (*call)();
  }
  lock.lock();
}

void ControlService::loop() {
  Patience heartbeat(heartbeat_every(options_.deadline));
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    poll_links(kTick);
    lock.lock();
    if (heartbeat.over()) {
      Frame alive;
      alive.header.sequence = progress_;
      put_all(alive);
      heartbeat.reset();
    }
    for (Link& link : links_)
      if (!link.gone) serve(link);
    if (!failure_ && !closed_) check_silence();
    call_back(lock);
    if (drained()) changed_.notify_all();
  }
  say_goodbye();
}

void ControlService::poll_links(int milliseconds) {
  std::vector<pollfd> polled{{wake_.fd(), POLLIN, 0}};
  {
    const std::lock_guard lock(mutex_);
    for (const Link& link : links_) {
      if (link.gone) continue;
      const int events = POLLIN | (link.frames.pending() ? POLLOUT : 0);
      polled.push_back({link.frames.socket().fd(), static_cast<int16_t>(events), 0});
    }
  }
  poll(polled.data(), polled.size(), milliseconds);
  uint64_t count = 0;
  if ((polled[0].revents & POLLIN) != 0) [[maybe_unused]] const auto ignored = read(wake_.fd(), &count, sizeof count);
}

void ControlService::serve(Link& link) {
  bool gone = !link.frames.flush();
  for (;;) {
    bool ended = false;
    auto frame = link.frames.get(&ended);
    gone = gone || ended;
    if (!frame) break;
    link.silence.reset();
    handle(link, std::move(*frame));
  }
  if (!gone) return;
  link.gone = true;
  link.frames.close();
  set_failure({link.rank, ErrorKind::peer, "its process ended without a word (killed, crashed, or out of memory?)"});
}

void ControlService::handle(Link& link, Frame frame) {
  const ExchangeKey key{frame.header.topic, frame.header.sequence};
  switch (frame.header.kind) {
    case FrameKind::contribution: return contribute(key, link.rank, std::move(frame.payload), frame.header.deadline);
    case FrameKind::result: return finish(key, unpack(frame.payload, options_.world));
    case FrameKind::failure:
      return set_failure({frame.header.rank, static_cast<ErrorKind>(frame.header.exit_code), text_of(frame)});
    case FrameKind::alive: link.progress = frame.header.sequence; return;
    default: return;
  }
}

void ControlService::check_silence() {
  for (Link& link : links_)
    if (!link.gone && link.silence.over())
      return set_failure({link.rank, ErrorKind::peer,
                          fmt::format("nothing has come from its machine for {:.0f} s (network, or a machine that hangs?)", options_.deadline)});
  if (options_.rank != 0) return;
  if (const auto late = table_.late()) set_failure({late->rank, ErrorKind::peer, late->reason});
}

// The last frames must arrive: a socket closed with unread data behind it would take them back.
void ControlService::say_goodbye() {
  Patience patience(kGoodbye);
  const auto open = [&] { return std::any_of(links_.begin(), links_.end(), [](const Link& link) { return !link.gone; }); };
  std::vector<bool> shut(links_.size());
  while (open() && !patience.over()) {
    for (size_t i = 0; i < links_.size(); ++i) {
      Link& link = links_[i];
      if (link.gone) continue;
      bool ended = !link.frames.flush();
      if (!link.frames.pending() && !shut[i]) {
        shutdown(link.frames.socket().fd(), SHUT_WR);
        shut[i] = true;
      }
      while (link.frames.get(&ended)) {}
      if (ended) {
        link.gone = true;
        link.frames.close();
      }
    }
    std::vector<pollfd> polled;
    for (const Link& link : links_)
      if (!link.gone) polled.push_back({link.frames.socket().fd(), POLLIN, 0});
    if (!polled.empty()) poll(polled.data(), polled.size(), kTick);
  }
}

}  // namespace sluice::comm
