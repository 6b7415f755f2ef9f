#include "gpu/stream_thread.h"

#include <pthread.h>

#include <utility>

namespace sluice::gpu {

class StreamThread::Reached final : public Event::State {
 public:
  bool reached() const override {
    const std::lock_guard lock(mutex_);
    return reached_;
  }

  void synchronize() const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
    if (failure_) std::rethrow_exception(failure_);
  }

  void set(const std::exception_ptr& failure) noexcept {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    failure_ = failure;
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;  // guards both below
  mutable std::condition_variable changed_;
  bool reached_ = false;
  std::exception_ptr failure_;
};

StreamThread::StreamThread(const std::string& name, std::function<void()> start)
    : thread_([this, name, start = std::move(start)] {
        pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
        if (start) start();
        loop();
      }) {}

StreamThread::~StreamThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

void StreamThread::enqueue(std::function<void()> work) { push({std::move(work), nullptr}); }

Event StreamThread::record() {
  auto reached = std::make_shared<Reached>();
  push({nullptr, reached});
  return Event(std::move(reached));
}

void StreamThread::wait(const Event& event) {
  if (event.state()) push({[event] { event.synchronize(); }, nullptr});
}

bool StreamThread::idle() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !running_;
}

void StreamThread::push(Item item) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(item));
  wake_.notify_one();
}

void StreamThread::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    lock.unlock();
    run(item);
    item = {};  // what the work holds is released before the next event
    lock.lock();
    running_ = false;
  }
}

void StreamThread::run(const Item& item) noexcept {
  if (item.reached) {
    item.reached->set(failure_);
  } else if (!failure_) {
    try {
      item.work();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
}

}  // namespace sluice::gpu
