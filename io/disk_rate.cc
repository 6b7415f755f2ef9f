#include "io/disk_rate.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>

#include "base/arena.h"
#include "base/error.h"
#include "io/disk_queue.h"

namespace sluice::io {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kBlock = 4 << 20;
constexpr unsigned kDepth = 8;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Keeps kDepth blocks in flight until the time is over, going round the file. Bytes per second.
class Burst {
 public:
  Burst(DiskQueue& queue, const File& file, const base::Arena& memory)
      : queue_(queue), file_(file), memory_(memory), blocks_(file.size() / kBlock) {}

  double run(IoOp op, double seconds) { return run(op, op, seconds); }

  // The two in turn.
  double run(IoOp even, IoOp odd, double seconds) {
    const auto start = Clock::now();
    uint64_t next = 0;
    {
      std::unique_lock lock(mutex_);
      while (!error_ && (next == 0 || seconds_since(start) < seconds)) {
        submit(next % 2 == 0 ? even : odd, next, lock);
        ++next;
        room_.wait(lock, [this] { return in_flight_ < kDepth; });
      }
    }
    queue_.drain();
    if (error_) std::rethrow_exception(error_);
    return static_cast<double>(next * kBlock) / seconds_since(start);
  }

 private:
  // Called and returns locked, but not while submitting.
  void submit(IoOp op, uint64_t index, std::unique_lock<std::mutex>& lock) {
    ++in_flight_;
    lock.unlock();
    queue_.submit(
        {op, &file_, memory_.data() + index % (2 * kDepth) * kBlock, kBlock, index % blocks_ * kBlock},
        [this](std::exception_ptr error) {
          const std::lock_guard done(mutex_);
          --in_flight_;
          if (error && !error_) error_ = std::move(error);
          room_.notify_one();
        });
    lock.lock();
  }

  DiskQueue& queue_;
  const File& file_;
  const base::Arena& memory_;
  const uint64_t blocks_;
  std::mutex mutex_;  // guards all below
  std::condition_variable room_;
  unsigned in_flight_ = 0;
  std::exception_ptr error_;
};

// Random, so that no drive or file system can compress it. What the reads leave in it does not matter.
base::Arena random_memory() {
  base::Arena memory(2 * kDepth * kBlock, "measuring the disk");
  std::mt19937_64 random(std::random_device{}());
  for (size_t i = 0; i < memory.size(); i += 8) {
    const uint64_t value = random();
    std::memcpy(memory.data() + i, &value, 8);
  }
  return memory;
}

template <class Measure>
void with_burst(const File& file, const Measure& measure) {
  SLUICE_CHECK(file.size() >= kBlock && file.size() % kBlock == 0, file.path().string());
  const base::Arena memory = random_memory();
  const auto queue = make_queue(QueueKind::automatic, {.block_size = kBlock, .depth = kDepth});
  const std::span<std::byte> all = memory.all();
  queue->register_memory(std::span(&all, 1));
  Burst burst(*queue, file, memory);
  measure(burst);
}

}  // namespace

DiskRate measure_rate(const File& file, double seconds) {
  DiskRate rate;
  with_burst(file, [&](Burst& burst) {
    rate.write = burst.run(IoOp::write, seconds);
    rate.read = burst.run(IoOp::read, seconds);
  });
  return rate;
}

DiskProfile measure_profile(const File& file, double seconds) {
  DiskProfile profile;
  with_burst(file, [&](Burst& burst) {
    profile.write = burst.run(IoOp::write, seconds);
    file.sync();
    profile.read = burst.run(IoOp::read, seconds);
    profile.mixed = burst.run(IoOp::read, IoOp::write, seconds);
    file.sync();
    burst.run(IoOp::write, 0);  // one block, as the last writes of a step find the drive
    const auto start = Clock::now();
    file.sync();
    profile.flush = seconds_since(start);
  });
  return profile;
}

File temporary_file(const std::filesystem::path& directory, uint64_t bytes) {
  const std::filesystem::path path = directory / fmt::format(".sluice-probe-{}", getpid());
  File file = File::create(path, bytes);
  std::filesystem::remove(path);
  return file;
}

}  // namespace sluice::io
