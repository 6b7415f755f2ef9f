#include "apps/output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace sluice::apps {

void check_writable(const char* option, const std::string& file) {
  if (file.empty()) return;
  const bool existed = std::filesystem::exists(file);
  errno = 0;
  if (!std::ofstream(file, std::ios::app))
    base::fail(base::ErrorKind::config, "{} {}: the file cannot be written: {}", option, file, std::strerror(errno));
  if (!existed) std::filesystem::remove(file);
}

}  // namespace sluice::apps
