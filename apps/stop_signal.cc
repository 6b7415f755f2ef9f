#include "apps/stop_signal.h"

#include <signal.h>
#include <unistd.h>

namespace sluice::apps {
namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a handler may touch it

void request(int) {
  requested = true;
  constexpr char kText[] = "\nsluice: stopping after this step; once more stops at once\n";
  [[maybe_unused]] const auto ignored = write(STDERR_FILENO, kText, sizeof kText - 1);
}

}  // namespace

void request_stop() { requested = true; }

const std::atomic<bool>& install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = request;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  if (isatty(STDIN_FILENO) == 0 && isatty(STDERR_FILENO) == 0) sigaction(SIGHUP, &action, nullptr);
  return requested;
}

}  // namespace sluice::apps
