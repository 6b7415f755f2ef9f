#include "io/timed_queue.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <utility>

namespace sluice::io {
namespace {

constexpr double kShortest = 1e-5;  // seconds; end of the first bucket
constexpr double kPerDoubling = 4;

using Clock = std::chrono::steady_clock;

// Of one direction.
class Watch {
 public:
  void begin(Clock::time_point now) {
    if (in_flight_++ == 0) busy_since_ = now;
  }
  void end(Clock::time_point begun, Clock::time_point now) {
    times_.add(std::chrono::duration<double>(now - begun).count());
    forget(now);
  }
  // It was never handed over.
  void forget(Clock::time_point now) {
    if (--in_flight_ == 0) times_.busy += std::chrono::duration<double>(now - busy_since_).count();
  }
  QueueTimes times(Clock::time_point now) const {
    QueueTimes times = times_;
    if (in_flight_ > 0) times.busy += std::chrono::duration<double>(now - busy_since_).count();
    return times;
  }

 private:
  QueueTimes times_;
  uint64_t in_flight_ = 0;
  Clock::time_point busy_since_;
};

class TimedQueue final : public DiskQueue {
 public:
  explicit TimedQueue(std::unique_ptr<DiskQueue> inner) : inner_(std::move(inner)) {}
  ~TimedQueue() override { inner_->drain(); }

  void submit(const IoRequest& request, IoDone done) override {
    if (request.op == IoOp::sync) return inner_->submit(request, std::move(done));
    Watch& watch = request.op == IoOp::read ? reads_ : writes_;
    const auto begun = Clock::now();
    locked([&] { watch.begin(begun); });
    try {
      inner_->submit(request, [this, &watch, begun, done = std::move(done)](std::exception_ptr error) {
        locked([&] { watch.end(begun, Clock::now()); });
        done(error);
      });
    } catch (...) {
      locked([&] { watch.forget(Clock::now()); });
      throw;
    }
  }

  void register_memory(std::span<const std::span<std::byte>> regions) override { inner_->register_memory(regions); }
  void drain() override { inner_->drain(); }
  std::string describe() const override { return inner_->describe(); }

  QueueStats stats() const override {
    QueueStats stats = inner_->stats();
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    stats.reads = reads_.times(now);
    stats.writes = writes_.times(now);
    return stats;
  }

 private:
  template <class Work>
  void locked(const Work& work) {
    const std::lock_guard lock(mutex_);
    work();
  }

  const std::unique_ptr<DiskQueue> inner_;
  mutable std::mutex mutex_;  // guards all below
  Watch reads_, writes_;
};

}  // namespace

void QueueTimes::add(double seconds) {
  in_flight += seconds;
  const double place = std::ceil(kPerDoubling * std::log2(std::max(seconds, kShortest) / kShortest));
  ++latency[std::min(static_cast<size_t>(place), kBuckets - 1)];
}

double QueueTimes::percentile(double percent) const {
  uint64_t all = 0, below = 0;
  for (const uint64_t n : latency) all += n;
  if (all == 0) return 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    below += latency[i];
    if (static_cast<double>(below) >= percent / 100 * static_cast<double>(all))
      return kShortest * std::exp2(static_cast<double>(i) / kPerDoubling);
  }
  return 0;
}

QueueTimes QueueTimes::operator-(const QueueTimes& earlier) const {
  QueueTimes difference = *this;
  difference.busy -= earlier.busy;
  difference.in_flight -= earlier.in_flight;
  for (size_t i = 0; i < kBuckets; ++i) difference.latency[i] -= earlier.latency[i];
  return difference;
}

std::unique_ptr<DiskQueue> make_timed_queue(std::unique_ptr<DiskQueue> inner) {
  return std::make_unique<TimedQueue>(std::move(inner));
}

}  // namespace sluice::io
