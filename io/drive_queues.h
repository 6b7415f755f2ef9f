// A disk queue for each of several drives, behind one.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "io/disk_queue.h"

namespace sluice::io {

struct DriveQueue {
  dev_t drive = 0;  // the file system of the files it is for (st_dev)
  std::unique_ptr<DiskQueue> queue;
};

// A request goes to the queue of its file's drive, else to the first one: a slow drive holds up nothing that another one could do.
// At least one; each with another drive.
std::unique_ptr<DiskQueue> make_drive_queues(std::vector<DriveQueue> drives);

// The file systems of these folders, each once, in that order. A folder that is not there has none.
std::vector<dev_t> drives_of(const std::vector<std::filesystem::path>& folders);

// A queue for the files on these drives, each with one of its own of the same kind; of one drive or none: make_queue(). What the system refuses
// is said once for all of them.
std::unique_ptr<DiskQueue> make_queue_for(const std::vector<dev_t>& drives, QueueKind kind, const QueueOptions& options);

}  // namespace sluice::io
