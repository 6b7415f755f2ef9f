#include "io/queue_kind.h"

#include <spdlog/spdlog.h>

#include <cstdlib>

#include "base/error.h"
#include "io/uring_queue.h"

namespace sluice::io {
namespace {

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

QueueKind usable_kind(QueueKind wanted, bool strict) {
  if (wanted == QueueKind::automatic) wanted = kind_of_environment();
  if (wanted == QueueKind::threads) return wanted;
  const UringStatus status = probe_uring();
  if (status.usable()) return QueueKind::uring;
  if (wanted == QueueKind::uring || strict)
    fail(ErrorKind::disk, "io_uring cannot be used: {}. SLUICE_IO=threads works everywhere", status.explanation());
  spdlog::warn("io_uring cannot be used: {}. Falling back to threads with pread and pwrite", status.explanation());
  return QueueKind::threads;
}

}  // namespace sluice::io
