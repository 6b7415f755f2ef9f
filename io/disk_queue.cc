#include "io/disk_queue.h"

#include <spdlog/spdlog.h>

#include <cstdlib>

#include "base/error.h"
#include "io/thread_queue.h"
#include "io/uring_queue.h"

namespace sluice::io {
namespace {

using base::Error;
using base::ErrorKind;
using base::fail;

QueueKind kind_of_environment() {
  const char* value = std::getenv("SLUICE_IO");
  const std::string name = value != nullptr ? value : "";
  if (name.empty()) return QueueKind::automatic;
  if (name == "uring") return QueueKind::uring;
  if (name == "threads") return QueueKind::threads;
  fail(ErrorKind::config, "SLUICE_IO={} is not a disk queue: use uring or threads, or leave it unset", name);
}

}  // namespace

std::future<void> submit(DiskQueue& queue, const IoRequest& request) {
  auto promise = std::make_shared<std::promise<void>>();
  std::future<void> future = promise->get_future();
  queue.submit(request, [promise](std::exception_ptr error) {
    if (error)
      promise->set_exception(std::move(error));
    else
      promise->set_value();
  });
  return future;
}

std::unique_ptr<DiskQueue> make_queue(QueueKind kind, const QueueOptions& options) {
  if (kind == QueueKind::automatic) kind = kind_of_environment();
  if (kind == QueueKind::threads) return make_thread_queue(options);
  const UringStatus status = probe_uring();
  if (status.usable()) return make_uring_queue(options);
  if (kind == QueueKind::uring || options.strict)
    fail(ErrorKind::disk, "io_uring cannot be used: {}. SLUICE_IO=threads works everywhere",
         status.explanation());
  spdlog::warn("io_uring cannot be used: {}. Falling back to threads with pread and pwrite",
               status.explanation());
  return make_thread_queue(options);
}

}  // namespace sluice::io
