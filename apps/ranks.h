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

}  // namespace sluice::apps
