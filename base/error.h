// The one exception type of the project. Its kind maps to the exit code of the command (docs/design.md, "Errors").
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace sluice::base {

// The numeric value is the process exit code.
enum class ErrorKind : int {
  bug = 1,            // an invariant of our own is broken
  config = 2,         // configuration or command line
  data = 3,           // token files, training text
  model = 4,          // Hugging Face folders, safetensors
  host_memory = 5,    // RAM, locked memory
  device_memory = 6,  // the device budget
  disk = 7,           // files, stores, I/O
  numerics = 8,       // non-finite loss or gradients
  peer = 9,           // another rank failed
  goal = 10,          // a goal of the config is missed
  interrupted = 75,   // stopped by a signal after a commit
};

std::string to_string(ErrorKind kind);

// A message says what failed, where, what was needed and found, and what to change.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }
  int exit_code() const { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
};

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// Invariants of our own code; stays on in release. The message is for developers.
[[noreturn]] void fail_check(const char* expression, const char* file, int line, const std::string& message);

}  // namespace sluice::base

// SLUICE_CHECK(condition) or SLUICE_CHECK(condition, "text"): throws Error(bug). Not for use in destructors.
#define SLUICE_CHECK(condition, ...)                                                                  \
  do {                                                                                                \
    if (!(condition)) ::sluice::base::fail_check(#condition, __FILE__, __LINE__, std::string{__VA_ARGS__}); \
  } while (false)
