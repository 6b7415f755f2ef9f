#include "engine/comm/local_group.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <vector>

#include "engine/comm/host_comm.h"
#include "engine/comm/patience.h"
#include "engine/comm/socket.h"

namespace sluice::comm {
namespace {

using std::chrono::milliseconds;

// One direction between two ranks.
struct Box {
  enum class State { empty, posted, copying } state = State::empty;
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
};

struct Boxes {
  explicit Boxes(int ranks) : world(static_cast<size_t>(ranks)), all(world * world) {}
  Box& at(int from, int to) { return all[static_cast<size_t>(from) * world + static_cast<size_t>(to)]; }

  const size_t world;
  std::mutex mutex;  // guards all
  std::condition_variable changed;
  std::vector<Box> all;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<Boxes> boxes, Control& control) : boxes_(std::move(boxes)), control_(control) {}
  std::string describe() const override { return "the memory of one process"; }

  void exchange(std::span<const Parcel> parcels) override {
    std::unique_lock lock(boxes_->mutex);
    for (const Parcel& p : parcels) boxes_->at(rank(), p.peer) = {Box::State::posted, p.send, p.send_bytes};
    boxes_->changed.notify_all();
    try {
      for (const Parcel& p : parcels) take(lock, p);
      for (const Parcel& p : parcels)
        wait(lock, p.peer, [&] { return boxes_->at(rank(), p.peer).state == Box::State::empty; });
    } catch (...) {
      withdraw(lock, parcels);
      throw;
    }
  }

 private:
  int rank() const { return control_.rank(); }

  void take(std::unique_lock<std::mutex>& lock, const Parcel& p) {
    Box& box = boxes_->at(p.peer, rank());
    wait(lock, p.peer, [&] { return box.state == Box::State::posted; });
    SLUICE_CHECK(box.bytes == p.receive_bytes, fmt::format("rank {} sends {} bytes where {} are expected", p.peer, box.bytes, p.receive_bytes));
    box.state = Box::State::copying;
    lock.unlock();
    if (box.bytes > 0) std::memcpy(p.receive, box.data, box.bytes);
    lock.lock();
    box.state = Box::State::empty;
    boxes_->changed.notify_all();
  }

  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, int peer, Condition condition) {
    Patience patience(control_.deadline());
    while (!boxes_->changed.wait_for(lock, milliseconds(20), condition)) {
      const bool late = patience.over();
      if (!late && !control_.failed()) continue;
      lock.unlock();
      const Failure guess{peer, base::ErrorKind::peer, fmt::format("rank {} has waited for its data for {:.0f} s", rank(), control_.deadline())};
      try {
        control_.throw_failure(guess);
      } catch (...) {
        lock.lock();
        throw;
      }
    }
  }

  // What others copy from must stay until they have.
  void withdraw(std::unique_lock<std::mutex>& lock, std::span<const Parcel> parcels) {
    for (const Parcel& p : parcels) {
      Box& box = boxes_->at(rank(), p.peer);
      boxes_->changed.wait(lock, [&] { return box.state != Box::State::copying; });
      box = {};
    }
  }

  const std::shared_ptr<Boxes> boxes_;
  Control& control_;
};

}  // namespace

struct LocalGroup::Shared {
  Shared(int w, double d) : boxes(std::make_shared<Boxes>(w)), listener(listen_on(0, true)), port(port_of(listener)), world(w), deadline(d) {}
  std::mutex mutex;  // guards listener
  const std::shared_ptr<Boxes> boxes;
  Socket listener;
  const uint16_t port;
  const int world;
  const double deadline;
};

LocalGroup::LocalGroup(int world, double deadline) : shared_(std::make_shared<Shared>(world, deadline)) {}
LocalGroup::~LocalGroup() = default;

std::unique_ptr<Comm> LocalGroup::join(int rank, const CommOptions& options) {
  ControlOptions control;
  control.rank = rank;
  control.world = shared_->world;
  control.port = shared_->port;
  control.deadline = shared_->deadline;
  control.job = fmt::format("group {}", static_cast<const void*>(shared_.get()));
  if (rank == 0) {
    const std::lock_guard lock(shared_->mutex);
    SLUICE_CHECK(shared_->listener, "rank 0 joins twice");
    control.listener = shared_->listener.release();
  }
  auto channel = std::make_unique<Control>(control);
  auto transport = std::make_unique<LocalTransport>(shared_->boxes, *channel);
  return make_host_comm(std::move(channel), std::move(transport), options);
}

}  // namespace sluice::comm
