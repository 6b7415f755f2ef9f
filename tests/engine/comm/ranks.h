// Runs the ranks of a test: as threads of this process, or as processes of its own.
#pragma once
#include <string>
#include <vector>

#include "rank_bodies.h"

namespace sluice::comm {

// Makes the Comm of a rank from a control channel that has all it needs.
using MakeFromControl = std::function<std::unique_ptr<Comm>(std::unique_ptr<Control>, const CommOptions&)>;

std::vector<Outcome> run_threads(int world, const std::string& body, double deadline);
// rank_program under a launcher: `command` and its arguments start it. A rank that leaves no word was killed.
std::vector<Outcome> run_launched(const std::string& command, int world, const std::string& body);
// `program`, built beside rank_program, under run_ranks.
std::vector<Outcome> run_by_launcher(const std::string& program, int world, const std::string& body);
std::vector<Outcome> run_processes(int world, const std::string& body, double deadline, const MakeFromControl& make);

}  // namespace sluice::comm
