// From the environment of a launcher to a Comm, in two steps: the ranks meet before anything else, so that whatever fails later on one of them
// is told to the others; the Comm comes when there is a device.
#pragma once
#include <memory>

#include "engine/comm/comm.h"
#include "engine/comm/launch_environment.h"
#include "engine/comm/mpi_session.h"

namespace sluice::comm {

struct Meeting {
  LaunchEnvironment launch;
  std::shared_ptr<MpiSession> mpi;   // where MPI is the way
  std::shared_ptr<Control> control;
};

// Blocks until all ranks are there. Call on the main thread. Errors as Control's constructor and start_mpi.
Meeting meet(const LaunchEnvironment& launch, double deadline = 60);

// CUDA: NCCL. Else MPI where the launcher is MPI's, and TCP where not. Collective. Errors: peer, device_memory, config (built without NCCL).
std::unique_ptr<Comm> make_comm(Meeting meeting, const CommOptions& options);

}  // namespace sluice::comm
