#include "io/thread_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "io/transfer.h"

namespace sluice::io {
namespace {

constexpr unsigned kMaxThreads = 8;

class ThreadQueue final : public DiskQueue {
 public:
  explicit ThreadQueue(const QueueOptions& options) : book_(options) {
    const unsigned count = std::min(options.depth, kMaxThreads);
    for (unsigned i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
  }

  ~ThreadQueue() override {
    drain();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void submit(const IoRequest& request, IoDone done) override {
    {
      const std::lock_guard lock(mutex_);
      book_.add(request, std::move(done));
    }
    work_.notify_all();  // one request may be many pieces
  }

  void register_memory(std::span<const std::span<std::byte>>) override {}

  void drain() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return book_.idle(); });
  }

  QueueStats stats() const override {
    const std::lock_guard lock(mutex_);
    return book_.stats();
  }

  std::string describe() const override {
    return fmt::format("{} threads with pread and pwrite", threads_.size());
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    std::optional<Piece> piece;
    while (true) {
      work_.wait(lock, [&] { return (piece = book_.next()).has_value() || stopping_; });
      if (!piece) return;
      std::exception_ptr error = piece->refused ? piece->refused : carry_out(*piece, lock);
      finish(*piece, std::move(error), lock);
    }
  }

  std::exception_ptr carry_out(Piece& piece, std::unique_lock<std::mutex>& lock) {
    while (true) {
      lock.unlock();
      backoff(piece);
      const int64_t result = transfer_blocking(piece);
      lock.lock();
      const Outcome outcome = book_.apply(piece, result);
      if (outcome.verdict == Verdict::complete || outcome.verdict == Verdict::failed) return outcome.error;
    }
  }

  void finish(Piece& piece, std::exception_ptr error, std::unique_lock<std::mutex>& lock) {
    std::shared_ptr<Transfer> transfer = book_.finish(piece, std::move(error));
    piece = Piece();
    work_.notify_one();  // there is room for a piece that the caps held back
    if (!transfer) return;
    lock.unlock();
    transfer->done(transfer->error);
    transfer.reset();  // what the callback holds goes before drain() returns
    lock.lock();
    book_.callback_returned();
    if (book_.idle()) idle_.notify_all();
  }

  mutable std::mutex mutex_;  // guards book_, stopping_
  std::condition_variable work_, idle_;
  TransferBook book_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<DiskQueue> make_thread_queue(const QueueOptions& options) {
  return std::make_unique<ThreadQueue>(options);
}

}  // namespace sluice::io
