#include "ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "engine/comm/local_group.h"
#include "engine/comm/rank_launcher.h"
#include "engine/comm/socket.h"
#include "gpu/emulated_device.h"

namespace sluice::comm {
namespace {

std::unique_ptr<gpu::Device> plain_device() { return gpu::make_plain_device({}); }

struct Child {
  pid_t pid;
  int text;  // pipe
};

Outcome collect(const Child& child) {
  Outcome outcome;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(child.text, buffer, sizeof buffer)) > 0;) outcome.text.append(buffer, static_cast<size_t>(got));
  ::close(child.text);
  int status = 0;
  waitpid(child.pid, &status, 0);
  outcome.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return outcome;
}

}  // namespace

std::vector<Outcome> run_threads(int world, const std::string& body, double deadline) {
  LocalGroup group(world, deadline);
  std::vector<Outcome> outcomes(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      outcomes[static_cast<size_t>(rank)] = run_rank(plain_device, [&](const CommOptions& options) { return group.join(rank, options); }, body);
    });
  for (auto& thread : threads) thread.join();
  return outcomes;
}

std::vector<Outcome> run_processes(int world, const std::string& body, double deadline, const MakeFromControl& make) {
  Socket listener = listen_on(0, true);
  ControlOptions control{.world = world, .port = port_of(listener), .job = "test", .deadline = deadline};
  std::vector<Child> children;
  for (control.rank = 0; control.rank < world; ++control.rank) {
    int ends[2];
    SLUICE_CHECK(pipe(ends) == 0);
    const pid_t pid = fork();
    SLUICE_CHECK(pid >= 0);
    if (pid == 0) {
      ::close(ends[0]);
      if (control.rank == 0) control.listener = listener.release();
      else listener.close();
      const Outcome outcome =
          run_rank(plain_device, [&](const CommOptions& options) { return make(std::make_unique<Control>(control), options); }, body);
      [[maybe_unused]] const auto ignored = write(ends[1], outcome.text.data(), outcome.text.size());
      _exit(outcome.code);
    }
    ::close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  listener.close();
  std::vector<Outcome> outcomes;
  for (const Child& child : children) outcomes.push_back(collect(child));
  return outcomes;
}

namespace {

// Where the ranks of a started program leave what became of them.
class OutcomeFolder {
 public:
  explicit OutcomeFolder(const std::string& body)
      : path_(std::filesystem::temp_directory_path() / fmt::format("sluice_ranks_{}_{}", getpid(), body)) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~OutcomeFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

  std::vector<Outcome> read(int world) const {
    std::vector<Outcome> outcomes;
    for (int rank = 0; rank < world; ++rank) {
      Outcome& outcome = outcomes.emplace_back(Outcome{128 + 9, ""});
      std::ifstream file(path_ / fmt::format("rank{}", rank));
      if (!(file >> outcome.code)) continue;
      file.get();
      std::getline(file, outcome.text);
    }
    return outcomes;
  }

 private:
  const std::filesystem::path path_;
};

// Beside the test, in a build tree and in the bundle of scripts/gpu-check.
std::string program_path(const std::string& program) { return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / program).string(); }

}  // namespace

std::vector<Outcome> run_launched(const std::string& command, int world, const std::string& body) {
  const OutcomeFolder folder(body);
  const std::string line =
      fmt::format("{} {} {} {} >{}/log 2>&1", command, program_path("rank_program"), body, folder.path(), folder.path());
  [[maybe_unused]] const int status = std::system(line.c_str());  // some launchers report the ranks' failures, others do not
  return folder.read(world);
}

std::vector<Outcome> run_by_launcher(const std::string& program, int world, const std::string& body) {
  const OutcomeFolder folder(body);
  const pid_t pid = fork();
  if (pid == 0) _exit(run_ranks({{program_path(program), body, folder.path()}, world}));
  waitpid(pid, nullptr, 0);
  return folder.read(world);
}

}  // namespace sluice::comm
