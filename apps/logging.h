// Logs of the command: standard error, and the run's log.txt.
#pragma once
#include <filesystem>

namespace sluice::apps {

// Installs the default spdlog logger: standard error, a letter for the level and the time before each line,
// colour on a terminal.
void start_logging();

// Copies what is logged from now on to `file` as well, appending. Error(disk) when it cannot be opened.
void log_to_file(const std::filesystem::path& file);

}  // namespace sluice::apps
