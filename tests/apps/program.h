// Runs the built program as a user would: a process of its own.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace sluice::apps {

struct ProgramResult {
  int status = 0;   // exit code; 128 + signal when killed
  std::string out, err;
};

// A process that has been started; waited for by finish(), killed by the destructor.
class Program {
 public:
  // launcher: a program and its arguments that start it (mpirun ...); empty: started directly.
  Program(const std::vector<std::string>& arguments, const std::filesystem::path& folder, const std::map<std::string, std::string>& environment = {},
          const std::vector<std::string>& launcher = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  void signal(int number) const;
  bool running();
  pid_t pid() const { return pid_; }
  ProgramResult finish();

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  int raw_status_ = 0;
  std::filesystem::path out_, err_;
};

// Start and finish.
ProgramResult run_program(const std::vector<std::string>& arguments, const std::filesystem::path& folder,
                          const std::map<std::string, std::string>& environment = {});

}  // namespace sluice::apps
