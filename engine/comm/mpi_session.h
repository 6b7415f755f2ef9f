// Open MPI, from initialisation to finalisation: once in a process.
#pragma once
#include <memory>
#include <string>

#include "engine/comm/comm.h"
#include "engine/comm/control.h"

namespace sluice::comm {

// Make, use and destroy it on one thread (the main one); the Comm's stream may use MPI in between, one thread at a time.
class MpiSession {
 public:
  virtual ~MpiSession() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  // Fills rank, world, and where rank 0 listens. Collective. Error(peer): a rank does not come.
  virtual void arrange(ControlOptions& options) = 0;
  // All ranks are done: the destructor finalises MPI, which waits for all of them. Else it does not.
  virtual void set_orderly() = 0;
};

// Error(config): built without MPI; a thread level below MPI_THREAD_SERIALIZED.
std::shared_ptr<MpiSession> start_mpi();

// Data over MPI; CPU tensors. MPI's own errors come back as errors of a Comm's, and nothing here aborts the job.
std::unique_ptr<Comm> make_mpi_comm(std::shared_ptr<MpiSession> session, std::shared_ptr<Control> control, const CommOptions& options);

}  // namespace sluice::comm
