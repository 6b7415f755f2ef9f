#include "offload/thread_ranks.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace sluice::offload {
namespace {

// What the threads share.
class Meeting {
 public:
  explicit Meeting(int world) : parts_(static_cast<size_t>(world)) {}

  std::vector<Bytes> gather(int rank, std::span<const std::byte> bytes) {
    std::unique_lock lock(mutex_);
    check(rank);
    parts_[static_cast<size_t>(rank)].assign(bytes.begin(), bytes.end());
    const uint64_t round = round_;
    if (++arrived_ == parts_.size()) {
      result_ = parts_;
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || !reason_.empty(); });
    if (round_ == round) check(rank);
    return result_;  // of this round: the next one ends only after all have come back
  }

  void leave(int rank, const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = fmt::format("rank {} {}", rank, reason);
    changed_.notify_all();
  }

 private:
  void check(int rank) const {
    if (!reason_.empty()) base::fail(base::ErrorKind::peer, "rank {} cannot go on: {}", rank, reason_);
  }

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<Bytes> parts_, result_;
  size_t arrived_ = 0;
  uint64_t round_ = 0;
  std::string reason_;  // of the first rank that left
};

class ThreadRank final : public Ranks {
 public:
  ThreadRank(Meeting& meeting, int rank, int world) : meeting_(meeting), rank_(rank), world_(world) {}
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  std::vector<Bytes> gather(std::span<const std::byte> bytes, double) override { return meeting_.gather(rank_, bytes); }

 private:
  Meeting& meeting_;
  const int rank_, world_;
};

}  // namespace

std::vector<std::exception_ptr> run_thread_ranks(int world, const std::function<void(Ranks& ranks)>& body) {
  Meeting meeting(world);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      ThreadRank ranks(meeting, rank, world);
      try {
        body(ranks);
        meeting.leave(rank, "has left");
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
        meeting.leave(rank, fmt::format("failed: {}", error.what()));
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace sluice::offload
