// A rank of the contract tests, started by whatever launcher: rank_program BODY FOLDER. What became of it lands in FOLDER/rank<n>.
#include <cstdio>
#include <fstream>

#include "base/error.h"
#include "engine/comm/connect.h"
#include "rank_bodies.h"
#include "rank_device.h"

int main(int argc, char** argv) {
  using namespace sluice;
  using namespace sluice::comm;
  if (argc != 3) return 2;
  try {
    Meeting meeting = meet(read_launch_environment(), kDeadline);
    const int rank = meeting.control->rank(), local_rank = meeting.launch.local_rank;
    const auto make_device = [local_rank] { return make_rank_device(local_rank); };
    const Outcome outcome = run_rank(make_device, [&](const CommOptions& options) { return make_rank_comm(std::move(meeting), options); }, argv[1]);
    std::ofstream(std::string(argv[2]) + "/rank" + std::to_string(rank)) << outcome.code << " " << outcome.text << std::endl;
    return outcome.code;
  } catch (const base::Error& error) {
    std::fprintf(stderr, "rank_program: %s\n", error.what());
    return error.exit_code();
  }
}
