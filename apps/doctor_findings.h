// What `sluice doctor` looks at. Pure: nothing is printed.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace sluice::apps {

struct Finding {
  enum class Status {
    ok,
    note,     // good to know; nothing to do
    warning,  // a run works, slower or with less; see the fix
    error,    // a run that needs this cannot start
  };
  std::string section, name;
  Status status = Status::ok;
  std::string value;    // what was found
  std::string meaning;  // for a run
  std::string fix;
  std::map<std::string, double> numbers;  // for programs: bytes, counts, bytes per second
};

std::vector<Finding> processor_findings();
std::vector<Finding> memory_findings();
std::vector<Finding> gpu_findings();
std::vector<Finding> kernel_io_findings();
std::vector<Finding> directory_findings(const std::filesystem::path& directory);

}  // namespace sluice::apps
