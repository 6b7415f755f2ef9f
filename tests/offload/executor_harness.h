// Fake operations that check the executor's promises while they run.
#pragma once
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gpu/emulated_device.h"
#include "io/disk_queue.h"
#include "offload/executor.h"
#include "offload/plan.h"

namespace sluice::offload {

using OpId = std::pair<uint64_t, uint32_t>;  // period, operation

// Watches operations begin and end, on any thread, and notes every broken promise.
class Watch {
 public:
  Watch(const Plan& plan, uint64_t first) : plan_(plan), first_(first) {
    for (uint32_t i = 0; i < plan.ops.size(); ++i)
      for (const Use& use : plan.ops[i].uses) ++users_[{use.ring, use.acquisition}];
  }

  void begin(const OpId& id) {
    const std::lock_guard lock(mutex_);
    const Op& op = plan_.ops[id.second];
    if (!begun_.insert(id).second) note(id, "began twice");
    if (id.first >= first_ + 3 && ended_in_[id.first - 3] != plan_.ops.size()) note(id, "began more than three periods ahead");
    for (const Dep& dep : op.deps)
      if (id.first >= first_ + dep.periods && !ended_.contains({id.first - dep.periods, dep.op}))
        note(id, "began before " + plan_.name(dep.op) + " was done");
    for (size_t u = 0; u < op.uses.size(); ++u) {
      const Use& use = op.uses[u];
      if (id.first < first_ + use.periods) continue;
      Buffer& buffer = buffers_[{use.ring, plan_.buffer(use, id.first)}];
      const Owner owner{id.first - use.periods, use.acquisition};
      if (u < op.acquires) {
        if (buffer.users_left != 0) note(id, "took a buffer that others still need");
        buffer = {owner, users_.at({use.ring, use.acquisition})};
      } else if (buffer.owner != owner) {
        note(id, "found a buffer of somebody else");
      }
    }
    const auto l = static_cast<size_t>(op.lane);
    if (is_disk_lane(op.lane)) return;
    if (at_work_[l]++ != 0) note(id, "began while its lane was at work");
    in_order(id);
  }

  void end(const OpId& id) {
    const std::lock_guard lock(mutex_);
    const Op& op = plan_.ops[id.second];
    ended_.insert(id);
    ++ended_in_[id.first];
    for (const Use& use : op.uses) {
      if (id.first < first_ + use.periods) continue;
      Buffer& buffer = buffers_[{use.ring, plan_.buffer(use, id.first)}];
      if (buffer.owner != Owner{id.first - use.periods, use.acquisition}) note(id, "lost its buffer while at work");
      --buffer.users_left;
    }
    if (!is_disk_lane(op.lane)) --at_work_[static_cast<size_t>(op.lane)];
  }

  // Loop thread: a disk operation is handed over (issued).
  void issued(const OpId& id) {
    const std::lock_guard lock(mutex_);
    const Op& op = plan_.ops[id.second];
    in_order(id);
    const auto l = static_cast<size_t>(op.lane);
    const bool state = op.lane == Lane::disk_state || op.lane == Lane::disk_write_state;
    if (++disk_in_flight_[l] + (state ? disk_in_flight_[l - 1] : 0) > plan_.widths[l]) note(id, "passed the lane's width");
  }
  void done(const OpId& id) {
    const std::lock_guard lock(mutex_);
    if (!ended_.contains(id)) note(id, "is reported done before its end");
    if (!done_.insert(id).second) note(id, "is reported done twice");
    if (is_disk_lane(plan_.ops[id.second].lane)) --disk_in_flight_[static_cast<size_t>(plan_.ops[id.second].lane)];
  }
  void failed(const OpId& id) {
    const std::lock_guard lock(mutex_);
    if (!is_disk_lane(plan_.ops[id.second].lane)) --at_work_[static_cast<size_t>(plan_.ops[id.second].lane)];
  }

  std::vector<std::string> notes() const {
    const std::lock_guard lock(mutex_);
    return notes_;
  }
  size_t begun() const { return count(begun_); }
  size_t done() const { return count(done_); }
  // Operations of a lane in the order in which they began, or were handed over to the disk.
  std::vector<OpId> order(Lane lane) const {
    const std::lock_guard lock(mutex_);
    return orders_[static_cast<size_t>(lane)];
  }
  bool has_begun(const OpId& id) const {
    const std::lock_guard lock(mutex_);
    return begun_.contains(id);
  }

 private:
  struct Owner {
    uint64_t period = UINT64_MAX;
    uint32_t acquisition = 0;
    bool operator==(const Owner&) const = default;
  };
  struct Buffer {
    Owner owner;
    uint32_t users_left = 0;
  };

  size_t count(const std::set<OpId>& ids) const {
    const std::lock_guard lock(mutex_);
    return ids.size();
  }
  void note(const OpId& id, const std::string& what) {
    notes_.push_back(plan_.name(id.second) + " of period " + std::to_string(id.first) + " " + what);
  }
  void in_order(const OpId& id) {
    const auto l = static_cast<size_t>(plan_.ops[id.second].lane);
    const auto& order = plan_.order[l];
    const size_t n = orders_[l].size();
    orders_[l].push_back(id);
    if (id != OpId{first_ + n / order.size(), order[n % order.size()]}) note(id, "is out of order in its lane");
  }

  const Plan& plan_;
  const uint64_t first_;
  mutable std::mutex mutex_;  // guards all below
  std::map<std::pair<Ring, uint32_t>, uint32_t> users_;     // by acquisition
  std::map<std::pair<Ring, uint32_t>, Buffer> buffers_;     // by number in the ring
  std::set<OpId> begun_, ended_, done_;
  std::map<uint64_t, size_t> ended_in_;  // operations by period
  std::array<std::vector<OpId>, kLanes> orders_;
  std::array<int, kLanes> at_work_{};
  std::array<uint32_t, kLanes> disk_in_flight_{};
  std::vector<std::string> notes_;
};

// A disk that completes what is pending in random order. offset names the operation.
class RandomQueue final : public io::DiskQueue {
 public:
  using Work = std::function<void(uint64_t)>;
  RandomQueue(uint32_t seed, Work work) : work_(std::move(work)), random_(seed), thread_([this] { loop(); }) {}
  ~RandomQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      changed_.notify_one();
    }
    thread_.join();
  }
  void submit(const io::IoRequest& request, io::IoDone done) override {
    const std::lock_guard lock(mutex_);
    pending_.emplace_back(request.offset, std::move(done));
    changed_.notify_one();
  }
  void register_memory(std::span<const std::span<std::byte>>) override {}
  void drain() override {}
  io::QueueStats stats() const override { return {}; }
  std::string describe() const override { return "random"; }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stop_ || !pending_.empty(); });
      if (pending_.empty()) return;
      std::swap(pending_[random_() % pending_.size()], pending_.back());
      auto [offset, done] = std::move(pending_.back());
      pending_.pop_back();
      lock.unlock();
      std::exception_ptr error;
      try {
        work_(offset);
      } catch (...) {
        error = std::current_exception();
      }
      done(error);
      lock.lock();
    }
  }

  const Work work_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::mt19937 random_;
  std::vector<std::pair<uint64_t, io::IoDone>> pending_;
  bool stop_ = false;
  std::thread thread_;
};

struct FakeOptions {
  uint64_t first = 0;
  uint64_t periods = 3;        // begin_period says no to first + periods
  uint32_t seed = 1;
  int jitter_us = 100;         // each operation takes up to this; 0: none
  std::optional<OpId> fail;    // this one throws
  bool fail_early = false;     // while it is handed over, not at work
  uint32_t skip_disk = 0;      // every n-th disk operation has nothing to do; 0: none
};

class FakeHandlers final : public OpHandlers {
 public:
  FakeHandlers(const Plan& plan, const FakeOptions& options)
      : watch(plan, options.first), plan_(plan), options_(options), queue_(options.seed, [this](uint64_t offset) {
          work({offset / plan_.ops.size(), static_cast<uint32_t>(offset % plan_.ops.size())});
        }) {}

  bool begin_period(uint64_t period) override {
    EXPECT_EQ(period, options_.first + begun_periods.load());
    if (period == options_.first + options_.periods) return false;
    ++begun_periods;
    return true;
  }
  void enqueue(const OpRun& run, gpu::Stream& stream) override {
    const OpId id = check(run);
    stream.enqueue([this, id] { work(id); });
  }
  std::optional<DiskRequest> request(const OpRun& run) override {
    const OpId id = check(run);
    watch.issued(id);
    if (options_.skip_disk != 0 && id.second % options_.skip_disk == 0) {
      work(id);
      return std::nullopt;
    }
    return DiskRequest{&queue_, {.offset = id.first * plan_.ops.size() + id.second}};
  }
  void run(const OpRun& run) override { work(check(run)); }
  void done(const OpRun& run) override { watch.done({run.period, run.index}); }

  Watch watch;
  std::atomic<uint64_t> begun_periods = 0;
  std::function<void(const OpId&)> at_work;  // called by every operation

 private:
  OpId check(const OpRun& run) {
    EXPECT_LT(run.period, options_.first + begun_periods) << "begin_period was not called before " << plan_.name(run.index);
    const OpId id{run.period, run.index};
    if (options_.fail_early && options_.fail == id) fail_here();
    return id;
  }
  void work(const OpId& id) {
    watch.begin(id);
    if (at_work) at_work(id);
    if (options_.jitter_us != 0) {
      std::mt19937 random(options_.seed + 7919 * static_cast<uint32_t>(id.first) + 104729 * id.second);
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % options_.jitter_us));
    }
    if (options_.fail == id) {
      watch.failed(id);
      fail_here();
    }
    watch.end(id);
  }
  [[noreturn]] static void fail_here() { base::fail(base::ErrorKind::numerics, "injected"); }

  const Plan& plan_;
  const FakeOptions options_;
  RandomQueue queue_;
};

// Plans by hand: operations in the order of their lanes, then the uses of rings.
inline Plan empty_plan() {
  Plan plan;
  plan.widths.fill(2);
  return plan;
}

inline uint32_t add(Plan& plan, Lane lane, std::vector<Dep> deps = {}) {
  Op op;
  op.kind = OpKind::forward;
  op.lane = lane;
  op.block = static_cast<int32_t>(plan.ops.size());  // so that names differ
  op.key = {static_cast<int32_t>(plan.ops.size()), 0, 0};
  op.deps = std::move(deps);
  plan.ops.push_back(std::move(op));
  return static_cast<uint32_t>(plan.ops.size() - 1);
}

// Uses of a ring: the acquiring operation first.
inline void use(Plan& plan, Ring ring, std::vector<Dep> users) {
  const uint32_t n = plan.rings[static_cast<size_t>(ring)].acquisitions++;
  Op& owner = plan.ops[users.front().op];
  owner.uses.insert(owner.uses.begin(), {ring, n, 0});
  ++owner.acquires;
  for (size_t i = 1; i < users.size(); ++i) plan.ops[users[i].op].uses.push_back({ring, n, users[i].periods});
}

// Streams of a device without LibTorch, and an executor on them.
struct FakeMachine {
  explicit FakeMachine(const Plan& plan, OpHandlers& handlers, base::Trace* trace = nullptr)
      : executor(plan, handlers, {.compute = compute.get(), .h2d = h2d.get(), .d2h = d2h.get(), .comm = comm.get(), .trace = trace}) {}
  std::unique_ptr<gpu::Device> device = gpu::make_plain_device({});
  std::unique_ptr<gpu::Stream> compute = device->create_stream("compute");
  std::unique_ptr<gpu::Stream> h2d = device->create_stream("h2d");
  std::unique_ptr<gpu::Stream> d2h = device->create_stream("d2h"), comm = device->create_stream("comm");
  Executor executor;
};

}  // namespace sluice::offload
