#include "io/disk_rate.h"

#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>

#include "base/arena.h"
#include "base/error.h"
#include "base/rounds.h"

namespace sluice::io {
namespace {

using base::monotonic_seconds;

// What the reads leave in it does not matter.
base::Arena random_memory(uint64_t bytes) {
  base::Arena memory(bytes, "measuring the disk");
  std::mt19937_64 random(std::random_device{}());
  for (size_t i = 0; i < memory.size(); i += 8) {
    const uint64_t value = random();
    std::memcpy(memory.data() + i, &value, 8);
  }
  return memory;
}

}  // namespace

struct DiskBurst::Impl {
  Impl(const File& f, const QueueOptions& options)
      : file(f),
        block(options.block_size),
        blocks(f.size() / options.block_size),
        depth(options.depth),
        memory(random_memory(2 * depth * block)),
        queue(make_queue(QueueKind::automatic, options)) {
    SLUICE_CHECK(file.size() >= block && file.size() % block == 0, file.path().string());
    const std::span<std::byte> all = memory.all();
    queue->register_memory(std::span(&all, 1));
  }

  void fill(double seconds) {
    SLUICE_CHECK(next == 0, "filled before all else");
    const double start = monotonic_seconds();
    const uint64_t bytes = run(IoOp::write, IoOp::write,
                               [=, this](uint64_t done) { return done == 0 || (done < blocks * block && monotonic_seconds() - start < seconds); });
    blocks = bytes / block;
  }

  // As long as `more` of the bytes submitted; returns how many these were. Each transfer that ends submits the next, as deep as the queue is.
  uint64_t run(IoOp even, IoOp odd, std::function<bool(uint64_t)> more) {
    ops = {even, odd};
    first = next;
    wanted = std::move(more);
    for (unsigned i = 0; i < depth; ++i) submit();
    queue->drain();
    if (error) std::rethrow_exception(error);
    return (next - first) * block;
  }

  void submit() {
    uint64_t index = 0;
    {
      const std::lock_guard lock(mutex);
      if (error || !wanted((next - first) * block)) return;
      index = next++;
    }
    queue->submit({ops[index % 2], &file, memory.data() + index % (2 * depth) * block, block, index % blocks * block}, [this](std::exception_ptr failure) {
      if (failure) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::move(failure);
      }
      submit();
    });
  }

  const File& file;
  const uint64_t block;
  uint64_t blocks;  // of the file, to go round
  const unsigned depth;
  const base::Arena memory;
  std::mutex mutex;   // guards the next five
  uint64_t next = 0;  // transfers so far: the next run goes on where this one ends
  uint64_t first = 0;
  std::array<IoOp, 2> ops{};
  std::function<bool(uint64_t)> wanted;
  std::exception_ptr error;
  const std::unique_ptr<DiskQueue> queue;  // drained before what its completions use goes
};

DiskBurst::DiskBurst(const File& file, const QueueOptions& queue) : impl_(std::make_unique<Impl>(file, queue)) {}
DiskBurst::~DiskBurst() = default;

uint64_t DiskBurst::run(IoOp even, IoOp odd, double seconds) {
  const double start = monotonic_seconds();
  return impl_->run(even, odd, [=](uint64_t done) { return done == 0 || monotonic_seconds() - start < seconds; });
}

uint64_t DiskBurst::run_bytes(IoOp op, uint64_t bytes) {
  return impl_->run(op, op, [=](uint64_t done) { return done < bytes; });
}

void DiskBurst::fill(double seconds) { impl_->fill(seconds); }

std::string DiskBurst::describe() const { return impl_->queue->describe(); }

namespace {

constexpr double kFill = 2;  // bursts that the first writing may take

double rate(DiskBurst& burst, IoOp even, IoOp odd, double seconds) {
  const double start = monotonic_seconds();
  const auto bytes = static_cast<double>(burst.run(even, odd, seconds));
  return bytes / (monotonic_seconds() - start);
}

}  // namespace

DiskRate measure_rate(const File& file, double seconds) {
  DiskBurst burst(file);
  burst.fill(kFill * seconds);
  DiskRate found;
  found.write = rate(burst, IoOp::write, IoOp::write, seconds);
  found.read = rate(burst, IoOp::read, IoOp::read, seconds);
  return found;
}

DiskProfile measure_profile(const File& file, double seconds) {
  DiskBurst burst(file);
  burst.fill(kFill * seconds);
  DiskProfile profile;
  profile.write = rate(burst, IoOp::write, IoOp::write, seconds);
  file.sync();
  profile.read = rate(burst, IoOp::read, IoOp::read, seconds);
  profile.mixed = rate(burst, IoOp::read, IoOp::write, seconds);
  file.sync();
  burst.run(IoOp::write, 0);  // one block, as the last writes of a step find the drive
  const double start = monotonic_seconds();
  file.sync();
  profile.flush = monotonic_seconds() - start;
  return profile;
}

std::vector<double> measure_commits(const File& file, uint64_t bytes, double seconds, const QueueOptions& options) {
  const base::Arena memory = random_memory(bytes);
  const auto queue = make_queue(QueueKind::automatic, options);
  std::vector<double> found;
  uint64_t offset = 0;
  base::repeat_for(seconds, [&] {
    const double begin = monotonic_seconds();
    submit(*queue, {IoOp::write, &file, memory.data(), bytes, offset}).get();
    submit(*queue, {IoOp::sync, &file}).get();
    found.push_back(monotonic_seconds() - begin);
    offset = offset + 2 * bytes <= file.size() ? offset + bytes : 0;
  });
  return found;
}

File temporary_file(const std::filesystem::path& directory, uint64_t bytes) {
  const std::filesystem::path path = directory / fmt::format(".sluice-probe-{}", getpid());
  File file = File::create(path, bytes);
  std::filesystem::remove(path);
  return file;
}

}  // namespace sluice::io
