#include "base/error.h"

namespace sluice::base {

std::string to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::bug: return "internal error";
    case ErrorKind::config: return "config error";
    case ErrorKind::data: return "data error";
    case ErrorKind::model: return "model error";
    case ErrorKind::host_memory: return "not enough host memory";
    case ErrorKind::device_memory: return "not enough device memory";
    case ErrorKind::disk: return "disk error";
    case ErrorKind::numerics: return "numerical error";
    case ErrorKind::peer: return "another rank failed";
    case ErrorKind::goal: return "goal missed";
    case ErrorKind::interrupted: return "interrupted";
  }
  return "error";
}

void fail_check(const char* expression, const char* file, int line, const std::string& message) {
  throw Error(ErrorKind::bug, fmt::format("check failed: {}{}{} ({}:{})", expression, message.empty() ? "" : ": ",
                                          message, file, line));
}

}  // namespace sluice::base
