#include "engine/python_tool.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;
using base::fail;

// The first `relative` that exists in the folder of this program or one above it; empty when none does.
fs::path search_upward(const fs::path& relative) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  for (fs::path folder = program.parent_path();; folder = folder.parent_path()) {
    if (fs::exists(folder / relative, error)) return folder / relative;
    if (folder == folder.root_path() || folder.empty()) return {};
  }
}

}  // namespace

fs::path find_python() {
  if (const char* chosen = std::getenv("SLUICE_PYTHON"); chosen != nullptr && *chosen != '\0') {
    if (access(chosen, X_OK) != 0)
      fail(ErrorKind::config, "SLUICE_PYTHON is {}, which cannot be run: {}", chosen, std::strerror(errno));
    return chosen;
  }
  const fs::path found = search_upward(".venv/bin/python");
  if (found.empty())
    fail(ErrorKind::config,
         "no Python: neither SLUICE_PYTHON is set nor is there a .venv in the folder of this program or "
         "above it. "
         "Run scripts/setup, or set SLUICE_PYTHON to an interpreter with the packages of "
         "tools/requirements.txt");
  return found;
}

fs::path find_tool(const std::string& name) {
  const fs::path found = search_upward(fs::path("tools") / name);
  if (found.empty())
    fail(ErrorKind::config,
         "tools/{} is neither in the folder of this program nor above it; keep the program inside its source "
         "tree",
         name);
  return found;
}

void exec_tool(const std::string& name, const std::vector<std::string>& arguments) {
  const std::string python = find_python(), tool = find_tool(name);
  std::vector<char*> argv = {const_cast<char*>(python.c_str()), const_cast<char*>(tool.c_str())};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  std::fflush(nullptr);
  execv(python.c_str(), argv.data());
  fail(ErrorKind::config, "cannot run {}: {}", python, std::strerror(errno));
}

}  // namespace sluice::engine
