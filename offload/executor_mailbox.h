// How completions of operations reach the executor's loop.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace sluice::offload {

struct Completion {
  uint32_t op;
  uint64_t period;
  double at;  // seconds, executor_now()
  std::exception_ptr error;
  bool moved = true;  // false: a disk operation that had nothing to transfer
};

// Thread-safe; one reader.
class Mailbox {
 public:
  void post(Completion completion) {
    const std::lock_guard lock(mutex_);
    letters_.push_back(std::move(completion));
    changed_.notify_one();
  }
  // The reader stops waiting, now or at its next take().
  void wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  }
  // Waits for something; swaps what there is with `out`, whose content is dropped.
  void take(std::vector<Completion>& out) {
    out.clear();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return woken_ || !letters_.empty(); });
    woken_ = false;
    letters_.swap(out);
  }

 private:
  std::mutex mutex_;  // guards both below
  std::condition_variable changed_;
  bool woken_ = false;
  std::vector<Completion> letters_;
};

}  // namespace sluice::offload
