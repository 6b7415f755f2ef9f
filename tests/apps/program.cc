#include "tests/apps/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/paths.h"

namespace sluice::apps {

namespace fs = std::filesystem;

namespace {

std::string read_text(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

fs::path output_file(const fs::path& folder, const char* suffix) {
  static std::atomic<int> count{0};
  return folder / ("output-" + std::to_string(count++) + suffix);
}

void redirect(const fs::path& file, int to) {
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(fd, to);
}

}  // namespace

Program::Program(const std::vector<std::string>& arguments, const fs::path& folder, const std::map<std::string, std::string>& environment,
                 const std::vector<std::string>& launcher)
    : out_(output_file(folder, ".out")), err_(output_file(folder, ".err")) {
  std::vector<std::string> words = launcher;
  words.push_back(binary_dir() / "sluice");
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ > 0) return;
  if (chdir(folder.c_str()) != 0) _exit(126);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  close(STDIN_FILENO);
  open("/dev/null", O_RDONLY);
  redirect(out_, STDOUT_FILENO);
  redirect(err_, STDERR_FILENO);
  execvp(argv[0], argv.data());
  _exit(127);
}

Program::~Program() {
  if (!ended_) {
    signal(SIGKILL);
    waitpid(pid_, &raw_status_, 0);
  }
}

void Program::signal(int number) const { kill(pid_, number); }

bool Program::running() {
  if (!ended_) ended_ = waitpid(pid_, &raw_status_, WNOHANG) == pid_;
  return !ended_;
}

ProgramResult Program::finish() {
  if (!ended_) {
    waitpid(pid_, &raw_status_, 0);
    ended_ = true;
  }
  ProgramResult result;
  result.status = WIFEXITED(raw_status_) ? WEXITSTATUS(raw_status_) : 128 + WTERMSIG(raw_status_);
  result.out = read_text(out_);
  result.err = read_text(err_);
  return result;
}

ProgramResult run_program(const std::vector<std::string>& arguments, const fs::path& folder,
                          const std::map<std::string, std::string>& environment) {
  return Program(arguments, folder, environment).finish();
}

}  // namespace sluice::apps
