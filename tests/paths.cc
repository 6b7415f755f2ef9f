#include "tests/paths.h"

#include <cstdlib>
#include <stdexcept>

namespace sluice {

std::filesystem::path source_dir() { return SLUICE_SOURCE_DIR; }
std::filesystem::path binary_dir() { return SLUICE_BINARY_DIR; }

std::filesystem::path test_models() {
  const char* chosen = std::getenv("SLUICE_TEST_MODELS");
  const std::filesystem::path folder = chosen != nullptr ? chosen : source_dir() / "build" / "test_models";
  if (!std::filesystem::exists(folder / "stamp"))
    throw std::runtime_error("no test models in " + folder.string() + ": run scripts/setup, or set SLUICE_TEST_MODELS");
  return folder;
}

}  // namespace sluice
