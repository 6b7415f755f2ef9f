// Logs of the command: standard error, and the run's log.txt.
#pragma once
#include <filesystem>
#include <string>

namespace sluice::apps {

// Installs the default spdlog logger: standard error, a letter for the level and the time before each line,
// colour on a terminal.
void start_logging();

// Copies to `file` as well, appending, what has been logged so far (the last lines of it) and will be. Call once, when the run is
// open: a refused start writes nothing. Error(disk) when it cannot be opened.
void log_to_file(const std::filesystem::path& file);

// Into the file only; the terminal gets its message from main. Nothing when there is no file.
void log_failure(const std::string& message);

}  // namespace sluice::apps
