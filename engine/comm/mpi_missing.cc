// In place of mpi_session.cc where there is no MPI.
#include "base/error.h"
#include "engine/comm/mpi_session.h"

namespace sluice::comm {

std::shared_ptr<MpiSession> start_mpi() {
  base::fail(base::ErrorKind::config, "started by mpirun, but this sluice is built without MPI: install libopenmpi-dev and openmpi-bin and build "
             "again, or start the ranks with sluice train --nproc, or torchrun");
}

std::unique_ptr<Comm> make_mpi_comm(std::shared_ptr<MpiSession>, std::shared_ptr<Control>, const CommOptions&) {
  base::fail(base::ErrorKind::bug, "built without MPI");
}

}  // namespace sluice::comm
