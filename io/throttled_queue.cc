#include "io/throttled_queue.h"

#include <fmt/format.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/link.h"

namespace sluice::io {
namespace {

using base::Link;

class ThrottledQueue final : public DiskQueue {
 public:
  ThrottledQueue(std::unique_ptr<DiskQueue> inner, const Throttle& throttle)
      : inner_(std::move(inner)), throttle_(throttle), read_(throttle.read), write_(throttle.write), thread_([this] { loop(); }) {}

  ~ThrottledQueue() override {
    drain();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  void submit(const IoRequest& request, IoDone done) override {
    Link& link = request.op == IoOp::read ? read_ : write_;
    if (request.op == IoOp::sync || !link.limited()) return inner_->submit(request, std::move(done));
    {
      const std::lock_guard lock(mutex_);
      ++outstanding_;
    }
    try {
      const Link::Clock::time_point due = link.reserve(static_cast<double>(request.bytes));
      inner_->submit(request, [this, due, done = std::move(done)](std::exception_ptr error) {
        hold(due, [done, error] { done(error); });
      });
    } catch (...) {
      finish();
      throw;
    }
  }

  void register_memory(std::span<const std::span<std::byte>> regions) override { inner_->register_memory(regions); }

  void drain() override {
    inner_->drain();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return outstanding_ == 0; });
  }

  QueueStats stats() const override { return inner_->stats(); }

  std::string describe() const override {
    const auto rate = [](double r) { return r > 0 ? fmt::format("{:.3g} GB/s", r / 1e9) : std::string("as it comes"); };
    return fmt::format("{}, throttled: read {}, write {}", inner_->describe(), rate(throttle_.read), rate(throttle_.write));
  }

 private:
  void hold(Link::Clock::time_point due, std::function<void()> done) {
    const std::lock_guard lock(mutex_);
    held_.emplace(due, std::move(done));
    changed_.notify_all();
  }

  void finish() {
    const std::lock_guard lock(mutex_);
    --outstanding_;
    changed_.notify_all();
  }

  void loop() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (held_.empty()) {
        changed_.wait(lock);
        continue;
      }
      if (const auto due = held_.begin()->first; due > Link::Clock::now()) {
        changed_.wait_until(lock, due);
        continue;
      }
      const std::function<void()> done = std::move(held_.begin()->second);
      held_.erase(held_.begin());
      lock.unlock();
      done();
      finish();
      lock.lock();
    }
  }

  const std::unique_ptr<DiskQueue> inner_;
  const Throttle throttle_;
  Link read_, write_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::multimap<Link::Clock::time_point, std::function<void()>> held_;
  uint64_t outstanding_ = 0;  // throttled requests whose `done` has not returned
  bool stopping_ = false;
  std::thread thread_;  // calls `done` when its time has come
};

}  // namespace

std::unique_ptr<DiskQueue> make_throttled_queue(std::unique_ptr<DiskQueue> inner, const Throttle& throttle) {
  return std::make_unique<ThrottledQueue>(std::move(inner), throttle);
}

}  // namespace sluice::io
