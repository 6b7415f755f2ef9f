// Several ranks of a run: started here (--nproc), or by torchrun, mpirun or srun.
#pragma once
#include <optional>

#include "engine/comm/launch_environment.h"

namespace sluice::apps {

// Of this process. nproc: as on the command line, 0 when it is not there. When this process is to start the ranks it does so, sees them
// through, and `exit_code` is that of the run; else it is a rank itself. Error(config): started by another launcher too.
struct RankStart {
  comm::LaunchEnvironment launch;
  std::optional<int> exit_code;
};
RankStart start_ranks(int nproc);

// For a command that is one process's work: whether this is not the first of those that a launcher has started. The first one says so.
bool left_to_first_rank();

}  // namespace sluice::apps
