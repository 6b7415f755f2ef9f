#include "io/faulty_queue.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "base/arena.h"
#include "base/error.h"
#include "io/system_error.h"

namespace sluice::io {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = FaultRule::Kind;

std::exception_ptr injected_error(const IoRequest& request, int error) {
  return std::make_exception_ptr(base::Error(
      base::ErrorKind::disk,
      fmt::format("{} of {} bytes at offset {} of {} failed: {} (injected)",
                  request.op == IoOp::read    ? "read"
                  : request.op == IoOp::write ? "write"
                                              : "sync",
                  request.bytes, request.offset, request.file->path().string(), errno_text(error))));
}

// So that `done` is called by a thread of the queue, as it must be, though nothing is transferred.
IoRequest nothing(const IoRequest& request) {
  return {.op = IoOp::read, .file = request.file};
}

IoRequest first_half(const IoRequest& request) {
  if (request.op == IoOp::sync) return nothing(request);
  IoRequest half = request;
  half.bytes = request.bytes / 2 / kAlignment * kAlignment;
  return half;
}

}  // namespace

struct FaultyQueue::Impl {
  struct Held {
    Clock::time_point due;
    IoRequest request;
    IoDone done;
  };
  struct Counted {
    FaultRule rule;
    uint64_t seen = 0;
  };

  Impl(std::unique_ptr<DiskQueue> wrapped, FaultyOptions given)
      : inner(std::move(wrapped)), options(std::move(given)), random(options.seed) {}

  // The rule that fits this request, if any. Locked.
  std::optional<Kind> match(const IoRequest& request) {
    std::optional<Kind> found;
    for (Counted& counted : rules) {
      const FaultRule& rule = counted.rule;
      if (rule.op && *rule.op != request.op) continue;
      ++counted.seen;
      const bool fits = counted.seen == rule.at || (rule.every && counted.seen % rule.at == 0);
      if (fits && !found) found = rule.kind;
    }
    if (found) ++injected;
    return found;
  }

  void forward(const IoRequest& request, IoDone done) {
    std::optional<Kind> kind;
    uint64_t dice = 0;
    {
      const std::lock_guard lock(mutex);
      kind = match(request);
      dice = random();
    }
    if (!kind) return inner->submit(request, std::move(done));
    switch (*kind) {
      case Kind::io_error:
        return fail(nothing(request), injected_error(request, EIO), std::move(done));
      case Kind::no_space:
        return fail(nothing(request), injected_error(request, ENOSPC), std::move(done));
      case Kind::short_then_error:
        return fail(first_half(request), injected_error(request, EIO), std::move(done));
      case Kind::lost_write:
        return inner->submit(nothing(request), std::move(done));
      case Kind::bit_flip:
        return flip(request, dice, std::move(done));
    }
  }

  void fail(const IoRequest& instead, std::exception_ptr error, IoDone done) {
    inner->submit(instead, [error = std::move(error), done = std::move(done)](const std::exception_ptr&) {
      done(error);
    });
  }

  void flip(const IoRequest& request, uint64_t dice, IoDone done) {
    if (request.bytes == 0) return inner->submit(request, std::move(done));
    const size_t at = dice / 8 % request.bytes;
    const auto bit = static_cast<std::byte>(1u << dice % 8);
    if (request.op == IoOp::read)
      return inner->submit(request,
                           [data = request.data, at, bit, done = std::move(done)](std::exception_ptr error) {
                             data[at] ^= bit;
                             done(std::move(error));
                           });
    const auto copy = std::make_shared<base::Arena>(request.bytes, "a faulty write");
    std::memcpy(copy->data(), request.data, request.bytes);
    copy->data()[at] ^= bit;
    IoRequest other = request;
    other.data = copy->data();
    inner->submit(other,
                  [copy, done = std::move(done)](std::exception_ptr error) { done(std::move(error)); });
  }

  // Thread: lets held requests go when they are due.
  void release_held() {
    std::unique_lock lock(mutex);
    while (!stopping || !held.empty()) {
      if (held.empty()) {
        changed.wait(lock);
        continue;
      }
      const auto next = std::min_element(held.begin(), held.end(),
                                         [](const Held& a, const Held& b) { return a.due < b.due; });
      if (const Clock::time_point due = next->due; due > Clock::now()) {
        changed.wait_until(lock, due);
        continue;
      }
      Held ready = std::move(*next);
      held.erase(next);
      lock.unlock();
      forward(ready.request, std::move(ready.done));
      lock.lock();
    }
  }

  std::unique_ptr<DiskQueue> inner;
  const FaultyOptions options;
  mutable std::mutex mutex;  // guards all below
  std::condition_variable changed, idle;
  std::mt19937_64 random;
  std::vector<Counted> rules;
  uint64_t injected = 0;
  uint64_t outstanding = 0;  // requests whose `done` has not returned
  uint64_t failures = 0;
  std::vector<Held> held;
  bool stopping = false;
  std::thread thread;  // only with a delay
};

FaultyQueue::FaultyQueue(std::unique_ptr<DiskQueue> inner, FaultyOptions options)
    : impl_(std::make_unique<Impl>(std::move(inner), std::move(options))) {
  set_rules(impl_->options.rules);
  if (impl_->options.max_delay.count() > 0) impl_->thread = std::thread([this] { impl_->release_held(); });
}

FaultyQueue::~FaultyQueue() {
  drain();
  if (impl_->thread.joinable()) {
    {
      const std::lock_guard lock(impl_->mutex);
      impl_->stopping = true;
    }
    impl_->changed.notify_all();
    impl_->thread.join();
  }
}

void FaultyQueue::set_rules(std::vector<FaultRule> rules) {
  const std::lock_guard lock(impl_->mutex);
  impl_->rules.clear();
  for (const FaultRule& rule : rules) impl_->rules.push_back({rule});
}

uint64_t FaultyQueue::injected() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->injected;
}

void FaultyQueue::submit(const IoRequest& request, IoDone done) {
  SLUICE_CHECK(request.file != nullptr && request.file->valid() && request.bytes % kAlignment == 0 &&
                   request.offset % kAlignment == 0 &&
                   reinterpret_cast<uintptr_t>(request.data) % kAlignment == 0,
               "misaligned request, or a closed file");
  IoDone counted = [impl = impl_.get(), done = std::move(done)](std::exception_ptr error) {
    if (error) {
      const std::lock_guard lock(impl->mutex);
      ++impl->failures;
    }
    done(error);
    const std::lock_guard lock(impl->mutex);
    if (--impl->outstanding == 0) impl->idle.notify_all();
  };
  {
    const std::lock_guard lock(impl_->mutex);
    ++impl_->outstanding;
    if (impl_->thread.joinable()) {
      const auto delay = std::chrono::microseconds(
          impl_->random() % (static_cast<uint64_t>(impl_->options.max_delay.count()) + 1));
      impl_->held.push_back({Clock::now() + delay, request, std::move(counted)});
      impl_->changed.notify_all();
      return;
    }
  }
  impl_->forward(request, std::move(counted));
}

void FaultyQueue::register_memory(std::span<const std::span<std::byte>> regions) {
  impl_->inner->register_memory(regions);
}

void FaultyQueue::drain() {
  {
    std::unique_lock lock(impl_->mutex);
    impl_->idle.wait(lock, [this] { return impl_->outstanding == 0; });
  }
  impl_->inner->drain();
}

QueueStats FaultyQueue::stats() const {
  QueueStats stats = impl_->inner->stats();
  const std::lock_guard lock(impl_->mutex);
  stats.failures = impl_->failures;
  return stats;
}

std::string FaultyQueue::describe() const {
  return "faulty, around " + impl_->inner->describe();
}

}  // namespace sluice::io
