#include "io/uring_queue.h"

#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "io/registered_memory.h"
#include "io/system_error.h"
#include "io/transfer.h"
#include "io/uring_ring.h"

namespace sluice::io {
namespace {

using base::Error;
using base::ErrorKind;

constexpr uint64_t kWake =
    ~uint64_t{0};  // user_data of the read of event_; pieces carry the index of their slot

std::string memlock_text() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : base::format_bytes(limit.rlim_cur);
}

// The ring belongs to one thread, which alone sets it up, submits, reaps, registers and calls back. Others
// hand it requests through book_ and wake it through an eventfd that the ring itself is reading. Files are
// not registered: that would keep a closed file, and its lock, alive.
class UringQueue final : public DiskQueue {
 public:
  UringQueue(const QueueOptions& options, std::shared_ptr<RingGroup> group)
      : strict_(options.strict), group_(std::move(group)), book_(options), slots_(options.depth) {
    for (unsigned i = options.depth; i-- > 0;) free_slots_.push_back(i);
    event_ = eventfd(0, EFD_CLOEXEC);
    if (event_ < 0)
      base::fail(ErrorKind::disk, "eventfd failed: {}{}", errno_text(errno), errno_advice(errno, {}, 0));
    std::promise<int> ready;
    std::future<int> result = ready.get_future();
    thread_ = std::thread([this, &ready] { run(ready); });
    if (const int error = -result.get(); error != 0) {
      thread_.join();
      ::close(event_);
      base::fail(ErrorKind::disk, "io_uring_setup with {} entries failed: {}", slots_.size() + 1,
                 errno_text(error));
    }
  }

  ~UringQueue() override {
    drain();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake();
    thread_.join();
    ::close(event_);
  }

  void submit(const IoRequest& request, IoDone done) override {
    {
      const std::lock_guard lock(mutex_);
      book_.add(request, std::move(done));
    }
    // From within a callback: the thread of the ring looks for more before it waits.
    if (std::this_thread::get_id() != thread_.get_id()) wake();
  }

  void register_memory(std::span<const std::span<std::byte>> regions) override {
    std::packaged_task<void()> task([this, regions] { register_on_thread(regions); });
    std::future<void> done = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      SLUICE_CHECK(book_.idle(), "register_memory with requests in flight");
      task_ = std::move(task);
    }
    wake();
    done.get();
  }

  void drain() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return book_.idle(); });
  }

  QueueStats stats() const override {
    const std::lock_guard lock(mutex_);
    return book_.stats();
  }

  std::string describe() const override {
    const std::lock_guard lock(mutex_);
    return fmt::format("io_uring ({}), {}", flags_,
                       registered_bytes_ != 0 ? "registered buffers" : "plain buffers");
  }

 private:
  // What was handed over before is seen. One write stands for all that come before the ring looks.
  void wake() {
    if (wake_sent_.exchange(true)) return;
    const uint64_t one = 1;
    while (::write(event_, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }

  void run(std::promise<int>& ready) {
    {
      const std::lock_guard lock(mutex_);
      const auto entries = static_cast<unsigned>(slots_.size()) + 1;
      const int result = set_up_ring(&ring_, entries, &flags_);
      ready.set_value(result);  // `ready` is gone from here on
      if (result != 0) return;
    }
    while (!run_tasks()) {
      issue();
      if (broken_)
        wait_for_wake();
      else
        wait_and_reap();
    }
    if (!broken_) io_uring_queue_exit(&ring_);
  }

  // True when it is time to stop. Never with the read of event_ in flight: the destructor's wake ends it
  // first.
  bool run_tasks() {
    std::packaged_task<void()> task;
    {
      const std::lock_guard lock(mutex_);
      std::swap(task, task_);
      if (!task.valid() && stopping_ && !waking_) return true;
    }
    if (task.valid()) task();
    return false;
  }

  void issue() {
    if (!waking_ && !broken_) {
      io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
      io_uring_prep_read(sqe, event_, &wakes_, sizeof(wakes_), 0);
      sqe->user_data = kWake;
      waking_ = true;
    }
    while (true) {
      std::optional<Piece> piece;
      {
        const std::lock_guard lock(mutex_);
        piece = book_.next();
      }
      if (!piece) return;
      if (piece->refused || broken_) {
        finish(*piece, piece->refused ? piece->refused : broken_);
        continue;
      }
      const unsigned slot = free_slots_.back();  // as many slots as book_ lets in flight
      free_slots_.pop_back();
      slots_[slot] = std::move(*piece);
      prepare(slot);
    }
  }

  void prepare(unsigned slot) {
    const Piece& piece = slots_[slot];
    io_uring_sqe* sqe =
        io_uring_get_sqe(&ring_);  // never null: at most one entry per slot and one for event_
    const int fd = piece.file->fd();
    const auto bytes = static_cast<unsigned>(piece.bytes);
    const std::optional<int> buffer = memory_.find(piece.data, piece.bytes);
    if (piece.op == IoOp::sync)
      io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
    else if (piece.op == IoOp::read && buffer)
      io_uring_prep_read_fixed(sqe, fd, piece.data, bytes, piece.offset, *buffer);
    else if (piece.op == IoOp::read)
      io_uring_prep_read(sqe, fd, piece.data, bytes, piece.offset);
    else if (buffer)
      io_uring_prep_write_fixed(sqe, fd, piece.data, bytes, piece.offset, *buffer);
    else
      io_uring_prep_write(sqe, fd, piece.data, bytes, piece.offset);
    if (piece.op != IoOp::sync) sqe->rw_flags = piece.transfer->flags;
    // Through the page cache the copy would run inside the submitting call, one piece after the other.
    if (piece.op != IoOp::sync && !piece.file->direct()) sqe->flags |= IOSQE_ASYNC;
    sqe->user_data = slot;
  }

  void wait_and_reap() {
    // At full depth nothing can be submitted before something ends: to wait for a quarter of it saves wake-ups.
    const unsigned some = free_slots_.empty() ? std::max(1u, static_cast<unsigned>(slots_.size() / 4)) : 1;
    const int result = io_uring_submit_and_wait(&ring_, some);
    if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) return break_ring(-result);
    io_uring_cqe* cqe = nullptr;
    bool progress = false;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const uint64_t data = cqe->user_data;
      const int transferred = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      progress = true;
      if (data == kWake)
        waking_ = wake_sent_ = false;  // before it looks
      else
        completed(static_cast<unsigned>(data), transferred);
    }
    // The kernel is short of memory and nothing completed: do not spin.
    if (result < 0 && !progress) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  void completed(unsigned slot, int64_t result) {
    Piece& piece = slots_[slot];
    Outcome outcome = apply(piece, result);
    while (outcome.verdict == Verdict::blocking) {  // rare enough to stop the ring for
      backoff(piece);
      outcome = apply(piece, transfer_blocking(piece));
    }
    if (outcome.verdict == Verdict::again) {
      backoff(piece);
      return prepare(slot);
    }
    Piece ended = std::exchange(piece, Piece());
    free_slots_.push_back(slot);
    finish(ended, std::move(outcome.error));
  }

  Outcome apply(Piece& piece, int64_t result) {
    const std::lock_guard lock(mutex_);
    return book_.apply(piece, result);
  }

  void finish(Piece& piece, std::exception_ptr error) {
    std::shared_ptr<Transfer> transfer;
    {
      const std::lock_guard lock(mutex_);
      transfer = book_.finish(piece, std::move(error));
    }
    piece = Piece();
    if (!transfer) return;
    transfer->done(transfer->error);
    transfer.reset();  // what the callback holds goes before drain() returns
    const std::lock_guard lock(mutex_);
    book_.callback_returned();
    if (book_.idle()) idle_.notify_all();
  }

  // The ring itself failed, which a kernel should not do. Taking it down cancels what is in flight;
  // everything fails from now on.
  void break_ring(int error) {
    io_uring_queue_exit(&ring_);
    waking_ = false;
    broken_ = std::make_exception_ptr(
        Error(ErrorKind::disk,
              fmt::format("io_uring stopped working: {}. Use SLUICE_IO=threads", errno_text(error))));
    for (Piece& slot : slots_)
      if (slot.transfer) finish(slot, broken_);
  }

  void wait_for_wake() {
    while (::read(event_, &wakes_, sizeof(wakes_)) < 0 && errno == EINTR) {
    }
    wake_sent_ = false;
  }

  void register_on_thread(std::span<const std::span<std::byte>> regions) {
    if (broken_ || group_->refused) return;
    if (!memory_.empty()) io_uring_unregister_buffers(&ring_);
    memory_.add(regions);
    if (memory_.empty()) return;
    const auto attempt = [this] {
      return -io_uring_register_buffers(&ring_, memory_.buffers().data(),
                                        static_cast<unsigned>(memory_.buffers().size()));
    };
    int error = attempt();
    if (error == ENOMEM && raise_memlock_limit()) error = attempt();
    const size_t bytes = memory_.bytes();
    if (error != 0) memory_.clear();
    {
      const std::lock_guard lock(mutex_);
      registered_bytes_ = error == 0 ? bytes : 0;
    }
    if (error == 0) return;
    group_->refused = true;
    const std::string text = fmt::format(
        "io_uring cannot register {} of buffers{}: {}; `ulimit -l` is {}. Raise it to save CPU time", base::format_bytes(bytes),
        group_->rings == 1 ? "" : fmt::format(" with the rings of {} drives, which takes {}", group_->rings, base::format_bytes(group_->rings * bytes)),
        errno_text(error), memlock_text());
    if (strict_) base::fail(ErrorKind::host_memory, "{}", text);
    spdlog::warn("{}. Going on with plain buffers", text);
  }

  const bool strict_;
  const std::shared_ptr<RingGroup> group_;
  int event_ = -1;
  std::atomic<bool> wake_sent_ = false;

  mutable std::mutex mutex_;  // guards the next seven
  std::condition_variable idle_;
  TransferBook book_;
  std::packaged_task<void()> task_;  // to run on the thread of the ring
  bool stopping_ = false;
  std::string flags_;
  size_t registered_bytes_ = 0;

  // Only the thread of the ring touches these.
  io_uring ring_{};
  std::vector<Piece> slots_;
  std::vector<unsigned> free_slots_;
  RegisteredMemory memory_;
  bool waking_ = false;  // the read of event_ is in flight
  uint64_t wakes_ = 0;
  std::exception_ptr broken_;

  std::thread thread_;
};

}  // namespace

std::unique_ptr<DiskQueue> make_uring_queue(const QueueOptions& options, std::shared_ptr<RingGroup> group) {
  return std::make_unique<UringQueue>(options, group ? std::move(group) : std::make_shared<RingGroup>());
}

}  // namespace sluice::io
