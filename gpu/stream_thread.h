// A host thread that plays a device stream: work in FIFO order, events in between.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "gpu/device.h"

namespace sluice::gpu {

// The FIFO, failure and event rules of Stream (gpu/device.h). Thread-safe.
class StreamThread {
 public:
  // name: the first 15 characters show in debuggers and top. start: run on the thread before any work; must not throw.
  StreamThread(const std::string& name, std::function<void()> start);
  ~StreamThread();  // waits for all work

  void enqueue(std::function<void()> work);  // skipped after a failure
  Event record();
  void wait(const Event& event);
  bool idle() const;  // all work so far is done, so that what enqueue gets now runs next

 private:
  class Reached;
  struct Item {
    std::function<void()> work;
    std::shared_ptr<Reached> reached;  // or an event
  };
  void push(Item item);
  void loop();
  void run(const Item& item) noexcept;

  mutable std::mutex mutex_;  // guards the four below
  std::condition_variable wake_;
  std::deque<Item> queue_;
  bool running_ = false;
  bool stop_ = false;
  std::exception_ptr failure_;  // only touched by the thread
  std::thread thread_;
};

}  // namespace sluice::gpu
