// `sluice doctor`: what this machine can do, what that means for a run, and how to fix the rest.
#pragma once
#include <filesystem>
#include <vector>

namespace sluice::apps {

struct DoctorOptions {
  std::vector<std::filesystem::path>
      dirs;           // to look at as places for slot files; a temporary file is written in each
  bool json = false;  // one JSON document on standard output
};

// The exit code: 0, or that of a disk error when one of the directories cannot be used.
int run_doctor(const DoctorOptions& options);

}  // namespace sluice::apps
