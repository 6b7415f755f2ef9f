// Every kind of disk queue, for the suites that all of them must pass.
#pragma once
#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/arena.h"
#include "base/units.h"
#include "io/disk_queue.h"
#include "io/faulty_queue.h"
#include "io/thread_queue.h"
#include "io/throttled_queue.h"
#include "io/uring_queue.h"
#include "tests/io/scratch.h"

namespace sluice::io {

using base::operator""_KiB;
using base::operator""_MiB;

struct Backend {
  const char* name;
  bool uring;
  bool registered;
  bool faulty;
  std::chrono::microseconds delay;
  Scratch::On on;
  bool direct;
  double throttle = 0;  // bytes per second
};

inline void PrintTo(const Backend& backend, std::ostream* out) {
  *out << backend.name;
}

class QueueTest : public ::testing::TestWithParam<Backend> {
 protected:
  QueueTest() : scratch_(GetParam().on), memory_(8_MiB, "the test") {}

  void SetUp() override {
    if (!GetParam().uring) return;
    if (const UringStatus status = probe_uring(); !status.usable()) GTEST_SKIP() << status.explanation();
  }

  // Small blocks, so that small requests are many pieces.
  std::unique_ptr<DiskQueue> make(QueueOptions options = {.block_size = 64_KiB, .depth = 4}) {
    const Backend& backend = GetParam();
    std::unique_ptr<DiskQueue> queue = backend.uring ? make_uring_queue(options) : make_thread_queue(options);
    if (backend.registered) {
      const std::span<std::byte> half =
          memory_.span(0, memory_.size() / 2);  // the other half stays unregistered
      queue->register_memory(std::span(&half, 1));
    }
    if (backend.throttle > 0)
      queue = make_throttled_queue(std::move(queue), {.read = backend.throttle, .write = backend.throttle});
    if (backend.faulty)
      queue = std::make_unique<FaultyQueue>(std::move(queue), FaultyOptions{.max_delay = backend.delay});
    return queue;
  }

  File create(const std::string& name, uint64_t bytes) {
    return File::create(scratch_ / name, bytes, {.direct = GetParam().direct});
  }

  Scratch scratch_;
  base::Arena memory_;
};

inline auto all_backends() {
  using std::chrono::microseconds;
  constexpr Scratch::On kDisk = Scratch::On::disk, kTmpfs = Scratch::On::tmpfs;
  return ::testing::Values(Backend{"threads", false, false, false, {}, kDisk, true},
                           Backend{"threads_page_cache", false, false, false, {}, kDisk, false},
                           Backend{"threads_tmpfs", false, false, false, {}, kTmpfs, true},
                           Backend{"uring", true, false, false, {}, kDisk, true},
                           Backend{"uring_registered", true, true, false, {}, kDisk, true},
                           Backend{"uring_page_cache", true, true, false, {}, kDisk, false},
                           Backend{"uring_tmpfs", true, true, false, {}, kTmpfs, true},
                           Backend{"faulty_pass_through", false, false, true, {}, kDisk, true},
                           Backend{"faulty_delayed", false, false, true, microseconds(300), kDisk, true},
                           Backend{"faulty_uring", true, true, true, {}, kDisk, true},
                           Backend{"faulty_uring_delayed", true, true, true, microseconds(300), kDisk, true},
                           Backend{"throttled", false, false, false, {}, kDisk, true, 2e9});
}
inline std::string backend_name(const ::testing::TestParamInfo<Backend>& instance) {
  return instance.param.name;
}

}  // namespace sluice::io
