// Starts the ranks of this host and sees them through: `sluice train --nproc N`.
#pragma once
#include <string>
#include <vector>

namespace sluice::comm {

struct RankCommand {
  std::vector<std::string> arguments;  // the program's path first
  int ranks = 1;
  // Seconds that the others may take to end by themselves once one has failed: a lost connection is noticed at once, and the reason told.
  double grace = 20;
  // The same where nothing is told: ranks that have not all met wait for one that does not come, and one that the others have given up is hung.
  double short_grace = 2;
};

// Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, SLUICE_JOB; rank 0 also SLUICE_LISTENER, a socket that
// listens on that port already, so that no other program can take it, and SLUICE_MET, a pipe into which it writes a byte when all have met. Rank 0 has this process's input and outputs; what the others print comes
// to standard error, each line behind its rank. SIGTERM, SIGINT and SIGHUP are passed on to all. If this process is killed, the ranks get
// SIGTERM.
//
// Blocks. Returns the exit code of the run: that of the first rank which ended with another one than 9 and 75; 9 when a rank was killed, or hung; 75
// when they were stopped; else 0. For a process of one thread.
int run_ranks(const RankCommand& command);

}  // namespace sluice::comm
