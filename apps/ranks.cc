#include "apps/ranks.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "engine/comm/rank_launcher.h"

namespace sluice::apps {
namespace {

using base::ErrorKind;

// This command line again: a rank finds itself in its environment.
comm::RankCommand own_command(int ranks) {
  comm::RankCommand command;
  command.ranks = ranks;
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(in, word, '\0');) command.arguments.push_back(word);
  SLUICE_CHECK(!command.arguments.empty());
  command.arguments[0] = std::filesystem::read_symlink("/proc/self/exe");
  return command;
}

}  // namespace

RankStart start_ranks(int nproc) {
  RankStart start{comm::read_launch_environment(), std::nullopt};
  const comm::LaunchEnvironment& launch = start.launch;
  const bool starts_itself = launch.launcher == comm::Launcher::none && nproc > 1;
  if (launch.launcher != comm::Launcher::none && launch.launcher != comm::Launcher::nproc && nproc > 0)
    base::fail(ErrorKind::config, "--nproc {}: {} has already started this process as rank {} of {}; use one of the two", nproc,
               comm::to_string(launch.launcher), launch.rank, launch.world);
  if (starts_itself) start.exit_code = comm::run_ranks(own_command(nproc));
  return start;
}

bool left_to_first_rank() {
  comm::LaunchEnvironment launch;
  try {
    launch = comm::read_launch_environment();
  } catch (const base::Error&) {  // RANK or so in a shell: no business of this command
    return false;
  }
  if (launch.world > 1 && launch.rank == 0)
    spdlog::info("{} has started {} processes; this command is one process's work, and the first one does it", comm::to_string(launch.launcher), launch.world);
  return launch.rank > 0;
}

}  // namespace sluice::apps
