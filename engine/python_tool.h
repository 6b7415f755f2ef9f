// Runs the Python programs of tools/, which lean on Hugging Face libraries.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace sluice::engine {

// SLUICE_PYTHON, else .venv/bin/python in the folder of this program or a parent of it. Error(config) when
// there is none.
std::filesystem::path find_python();
// tools/NAME, searched the same way. Error(config) when there is none.
std::filesystem::path find_tool(const std::string& name);

// Replaces this process by `python tools/NAME arguments...`: its output, signals and exit code are the
// program's own. The tools use the exit codes of base::ErrorKind. Returns only by Error(config).
[[noreturn]] void exec_tool(const std::string& name, const std::vector<std::string>& arguments);

}  // namespace sluice::engine
