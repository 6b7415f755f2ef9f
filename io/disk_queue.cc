#include "io/disk_queue.h"

#include "io/queue_kind.h"
#include "io/thread_queue.h"
#include "io/uring_queue.h"

namespace sluice::io {

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
  return usable_kind(kind, options.strict) == QueueKind::uring ? make_uring_queue(options) : make_thread_queue(options);
}

}  // namespace sluice::io
