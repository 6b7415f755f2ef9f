// Ranks that are threads of one process: for tests, and for several ranks in one program.
#pragma once
#include <memory>
#include <string>

#include "engine/comm/comm.h"

namespace sluice::comm {

// The control channel is the same as between processes, over loopback. Thread-safe.
class LocalGroup {
 public:
  // deadline: seconds, of the control channel.
  explicit LocalGroup(int world, double deadline = 60);
  ~LocalGroup();

  // Each rank once, each from its own thread: it returns when all have called. The group may be gone before the Comms.
  std::unique_ptr<Comm> join(int rank, const CommOptions& options);

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace sluice::comm
