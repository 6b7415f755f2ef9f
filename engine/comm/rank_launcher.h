// Starts the ranks of this host and sees them through: `sluice train --nproc N`.
#pragma once
#include <string>
#include <vector>

namespace sluice::comm {

struct RankCommand {
  std::vector<std::string> arguments;  // the program's path first
  int ranks = 1;
  // Seconds that the others may take to end by themselves once one has failed. A lost connection is noticed at once; what they wait for without one
  // (ranks that have not met yet) does not come any more.
  double grace = 20;
};

// Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, SLUICE_JOB; rank 0 also SLUICE_LISTENER, a socket that
// listens on that port already, so that no other program can take it. Rank 0 has this process's input and outputs; what the others print comes
// to standard error, each line behind its rank. SIGTERM, SIGINT and SIGHUP are passed on to all. If this process is killed, the ranks get
// SIGTERM.
//
// Blocks. Returns the exit code of the run: that of the first rank which failed by its own fault; 9 when a rank was killed; 75 when
// they were stopped; else 0. For a process of one thread.
int run_ranks(const RankCommand& command);

}  // namespace sluice::comm
