// Files that a command is told to write when its work is done.
#pragma once
#include <string>

namespace sluice::apps {

// Before the work: Error(config) when the file of this option ("--out") cannot be written. An empty name is fine. Leaves the file as it is.
void check_writable(const char* option, const std::string& file);

}  // namespace sluice::apps
