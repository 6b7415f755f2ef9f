#include "engine/comm/rank_launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "base/error.h"
#include "engine/comm/patience.h"
#include "engine/comm/socket.h"

namespace sluice::comm {
namespace {

using base::ErrorKind;

constexpr int kTick = 100;        // milliseconds
constexpr double kTermGrace = 10;  // seconds between SIGTERM and SIGKILL
constexpr int kPeer = static_cast<int>(ErrorKind::peer), kInterrupted = static_cast<int>(ErrorKind::interrupted);
constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};

struct Rank {
  pid_t pid = -1;
  Socket output;     // a pipe; none for rank 0
  std::string line;  // of its output, not ended yet
  bool running = true;
};

class Launcher {
 public:
  explicit Launcher(const RankCommand& command)
      : command_(command), listener_(listen_on(0, true)), patience_(command.grace), ranks_(static_cast<size_t>(command.ranks)) {
    std::random_device random;
    job_ = fmt::format("nproc {:08x}{:08x}", random(), random());
    sigset_t taken;
    sigemptyset(&taken);
    for (const int number : kSignals) sigaddset(&taken, number);
    sigprocmask(SIG_BLOCK, &taken, &mask_);
    signals_ = Socket(signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC));
    SLUICE_CHECK(signals_, "signalfd");
  }
  ~Launcher() { sigprocmask(SIG_SETMASK, &mask_, nullptr); }

  int run() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) start(rank);
    listener_.close();
    while (std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.running; })) {
      wait();
      take_signals();
      for (size_t rank = 0; rank < ranks_.size(); ++rank) relay(rank);
      if (!how_.empty()) hurry();
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) relay(rank);
    return verdict();
  }

 private:
  void start(size_t index) {
    int ends[2];  // rank 0 tells over its pipe that all have met, the others print into theirs
    if (pipe2(ends, O_CLOEXEC) != 0) base::fail(ErrorKind::bug, "pipe: {}", std::strerror(errno));
    const pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
      send(SIGKILL);
      base::fail(ErrorKind::host_memory, "cannot start rank {}: {}", index, std::strerror(errno));
    }
    if (pid == 0) become(static_cast<int>(index), ends[1], parent);
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    ranks_[index].pid = pid;
    (index == 0 ? meeting_ : ranks_[index].output) = Socket(ends[0]);
  }

  // In the child. A group of its own: what a terminal sends on Ctrl-C comes once, through the launcher.
  [[noreturn]] void become(int rank, int pipe_end, pid_t parent) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(kPeer);
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
    const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
    set("RANK", std::to_string(rank));
    set("WORLD_SIZE", std::to_string(command_.ranks));
    set("LOCAL_RANK", std::to_string(rank));
    set("LOCAL_WORLD_SIZE", std::to_string(command_.ranks));
    set("MASTER_ADDR", "127.0.0.1");
    set("MASTER_PORT", std::to_string(port_of(listener_)));
    set("SLUICE_JOB", job_);
    if (rank == 0) {
      set("SLUICE_LISTENER", std::to_string(listener_.fd()));
      set("SLUICE_MET", std::to_string(pipe_end));
      for (const int kept : {listener_.fd(), pipe_end}) fcntl(kept, F_SETFD, 0);
    } else {
      for (const char* name : {"SLUICE_LISTENER", "SLUICE_MET"}) unsetenv(name);
      dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
      dup2(pipe_end, STDOUT_FILENO);
      dup2(pipe_end, STDERR_FILENO);
    }
    std::vector<char*> arguments;
    for (const std::string& argument : command_.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
    std::fprintf(stderr, "cannot start %s: %s\n", arguments[0], std::strerror(errno));
    _exit(127);
  }

  void wait() {
    std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
    for (const Rank& rank : ranks_)
      if (rank.output) polled.push_back({rank.output.fd(), POLLIN, 0});
    poll(polled.data(), polled.size(), kTick);
  }

  void take_signals() {
    signalfd_siginfo info;
    while (read(signals_.fd(), &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGCHLD) send(static_cast<int>(info.ssi_signo));
    for (size_t index = 0; index < ranks_.size(); ++index) {
      int status = 0;
      Rank& rank = ranks_[index];
      if (!rank.running || waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
      rank.running = false;
      ended(index, status);
    }
  }

  void ended(size_t rank, int status) {
    const bool killed = WIFSIGNALED(status);
    const int code = killed ? kPeer : WEXITSTATUS(status);
    stopped_ = stopped_ || code == kInterrupted;
    if (code == 0 || code == kInterrupted) return;
    killed_ = killed_ || killed;
    if (code != kPeer && own_fault_ == 0) own_fault_ = code;
    const std::string how = killed ? fmt::format("rank {} was killed by signal {} ({})", rank, WTERMSIG(status), strsignal(WTERMSIG(status)))
                                   : fmt::format("rank {} has ended with exit code {}", rank, code);
    if (how_.empty()) how_ = how;
    if (hurried_) return;
    if (killed) std::fprintf(stderr, "sluice: %s\n", how.c_str());
    char byte;
    met_ = met_ || read(meeting_.fd(), &byte, 1) == 1;
    patience_ = Patience(met_ && !hung() ? command_.grace : std::min(command_.grace, command_.short_grace));
  }

  // The one that runs yet has kept the others waiting until they gave up: none of them knows of a fault, or was killed.
  bool hung() const { return own_fault_ == 0 && !killed_ && std::ranges::count(ranks_, true, &Rank::running) == 1; }

  int verdict() const {
    if (own_fault_ != 0) return own_fault_;
    if (!how_.empty()) return kPeer;
    return stopped_ ? kInterrupted : 0;
  }

  // Ranks are told of a failure by the others. One that does not react is ended.
  void hurry() {
    if (!patience_.over()) return;
    if (!hurried_) std::fprintf(stderr, "sluice: %s\n", why().c_str());
    send(hurried_ || hung() ? SIGKILL : SIGTERM);
    hurried_ = true;
    patience_ = Patience(std::min(command_.grace, kTermGrace));
  }

  std::string why() const {
    std::string left;
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].running) left += fmt::format("{}{}", left.empty() ? "" : ", ", rank);
    if (hung()) return fmt::format("the other ranks have given up waiting for rank {}, which is hung or stopped; killing it", left);
    if (!met_) return fmt::format("{} before all ranks had met; ending the others", how_);
    return fmt::format("{}; still running: rank {}; ending what is left", how_, left);
  }

  void send(int signal) const {
    for (const Rank& rank : ranks_)
      if (rank.running && rank.pid > 0) kill(rank.pid, signal);
  }

  // Whole lines, and at the end what is left.
  void relay(size_t index) {
    Rank& rank = ranks_[index];
    char buffer[4096];
    for (ssize_t got = 1; rank.output && got > 0;) {
      got = read(rank.output.fd(), buffer, sizeof buffer);
      if (got > 0) rank.line.append(buffer, static_cast<size_t>(got));
      if (got == 0) rank.output.close();
    }
    if (!rank.output && !rank.line.empty() && rank.line.back() != '\n') rank.line += '\n';
    for (size_t end = 0; (end = rank.line.find('\n')) != std::string::npos; rank.line.erase(0, end + 1))
      std::fprintf(stderr, "rank %zu: %s\n", index, rank.line.substr(0, end).c_str());
  }

  const RankCommand& command_;
  Socket listener_, signals_, meeting_;
  std::string job_;
  sigset_t mask_{};     // before
  Patience patience_;   // asked once a rank has failed
  std::vector<Rank> ranks_;
  std::string how_;     // how the first rank that failed has ended; empty: none has
  int own_fault_ = 0;   // exit code that a rank's failure has given to the run
  bool met_ = false, killed_ = false, stopped_ = false, hurried_ = false;
};

}  // namespace

int run_ranks(const RankCommand& command) { return Launcher(command).run(); }

}  // namespace sluice::comm
