// One thing that doctor found.
#pragma once
#include <map>
#include <string>

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

}  // namespace sluice::apps
