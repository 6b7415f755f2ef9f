#include "io/drive_queues.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "io/queue_kind.h"
#include "io/thread_queue.h"
#include "io/uring_queue.h"

namespace sluice::io {
namespace {

class DriveQueues final : public DiskQueue {
 public:
  explicit DriveQueues(std::vector<DriveQueue> drives) : drives_(std::move(drives)) { SLUICE_CHECK(!drives_.empty(), "queues of no drive"); }
  ~DriveQueues() override { drain_all(); }

  void submit(const IoRequest& request, IoDone done) override {
    queue_of(request).submit(request, std::move(done));
    ++submitted_;
  }

  void register_memory(std::span<const std::span<std::byte>> regions) override {
    for (const DriveQueue& drive : drives_) drive.queue->register_memory(regions);
  }

  void drain() override { drain_all(); }

  QueueStats stats() const override {
    QueueStats sum;
    for (const DriveQueue& drive : drives_) {
      const QueueStats one = drive.queue->stats();
      sum.bytes_read += one.bytes_read;
      sum.bytes_written += one.bytes_written;
      sum.requests += one.requests;
      sum.retries += one.retries;
      sum.short_transfers += one.short_transfers;
      sum.failures += one.failures;
    }
    return sum;
  }

  std::string describe() const override {
    std::vector<std::string> all;
    for (const DriveQueue& drive : drives_) all.push_back(drive.queue->describe());
    if (std::ranges::count(all, all.front()) == std::ssize(all)) return fmt::format("{} drives, each with {}", all.size(), all.front());
    return fmt::format("{} drives, with {}", all.size(), fmt::join(all, "; "));
  }

 private:
  // A file that is closed is refused by any queue.
  DiskQueue& queue_of(const IoRequest& request) const {
    struct stat info {};
    if (request.file != nullptr && fstat(request.file->fd(), &info) == 0)
      for (const DriveQueue& drive : drives_)
        if (drive.drive == info.st_dev) return *drive.queue;
    return *drives_.front().queue;
  }

  // What completes on one drive may submit to another that was found idle: until a whole round finds nothing new.
  void drain_all() {
    uint64_t before = 0;
    do {
      before = submitted_;
      for (const DriveQueue& drive : drives_) drive.queue->drain();
    } while (submitted_ != before);
  }

  const std::vector<DriveQueue> drives_;
  std::atomic<uint64_t> submitted_ = 0;
};

}  // namespace

std::unique_ptr<DiskQueue> make_drive_queues(std::vector<DriveQueue> drives) { return std::make_unique<DriveQueues>(std::move(drives)); }

std::vector<dev_t> drives_of(const std::vector<std::filesystem::path>& folders) {
  std::vector<dev_t> found;
  for (const std::filesystem::path& folder : folders)
    if (struct stat info {}; stat(folder.c_str(), &info) == 0 && std::ranges::find(found, info.st_dev) == found.end()) found.push_back(info.st_dev);
  return found;
}

std::unique_ptr<DiskQueue> make_queue_for(const std::vector<dev_t>& drives, QueueKind kind, const QueueOptions& options) {
  if (drives.size() < 2) return make_queue(kind, options);
  const bool uring = usable_kind(kind, options.strict) == QueueKind::uring;
  const auto group = std::make_shared<RingGroup>(RingGroup{.rings = static_cast<unsigned>(drives.size())});
  std::vector<DriveQueue> queues;
  for (const dev_t drive : drives) queues.push_back({drive, uring ? make_uring_queue(options, group) : make_thread_queue(options)});
  return make_drive_queues(std::move(queues));
}

}  // namespace sluice::io
