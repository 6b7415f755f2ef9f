// Which rank this process is, from the environment that its launcher has set.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace sluice::comm {

constexpr int kMostRanks = 1 << 16;

enum class Launcher { none, nproc, torchrun, mpirun, variables, srun };
const char* to_string(Launcher launcher);  // "sluice train --nproc", ...

struct LaunchEnvironment {
  Launcher launcher = Launcher::none;
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  // among the ranks of this host: which GPU
  bool mpi = false;                     // started so that MPI finds its peers: Open MPI's mpirun, or srun --mpi=pmix
  std::string host;                     // of rank 0, and its port; empty where MPI tells them
  uint16_t port = 0;
  int listener = -1;                    // nproc, rank 0: a socket that listens there already
  int met = -1;                         // nproc, rank 0: a pipe; a byte in it tells the launcher that all ranks have met
  std::string job;                      // the same on all ranks of this start, and no other's
};

// Looked for in this order; the innermost launcher counts. World 1 when there is none.
//   nproc      SLUICE_JOB, RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, SLUICE_LISTENER, SLUICE_MET (rank_launcher.h)
//   torchrun   TORCHELASTIC_RUN_ID, RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT. torchrun's own store often listens on
//              MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE): then the port after it is taken
//   mpirun     OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   variables  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT set by hand; LOCAL_RANK
//   srun       SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID of a job step (not those of a batch script or an allocation). How many ranks this host
//              has: SLURM_STEP_TASKS_PER_NODE at SLURM_NODEID. MASTER_ADDR and MASTER_PORT, or the first of SLURM_STEP_NODELIST and a port
//              made of the job's number
// SLUICE_PORT: the port, whatever the above say. Error(config): a variable is missing or no number; started by the mpirun of another MPI.
LaunchEnvironment read_launch_environment(const std::function<const char*(const char*)>& get = {});

// Of a Slurm list: "4(x2),1" has 4 on nodes 0 and 1, and 1 on node 2. 0: it says nothing about the node.
int tasks_on_node(const std::string& list, uint64_t node);

// First host of a Slurm list: "n[01-03,07],m1" -> "n01".
std::string first_host(const std::string& list);

}  // namespace sluice::comm
