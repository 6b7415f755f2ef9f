// SIGTERM, SIGINT and (without a terminal) SIGHUP as a flag: the step at work is finished and committed, then the program ends.
#pragma once
#include <atomic>

namespace sluice::apps {

// Installs the handlers; call once. A second signal of the same kind ends the process at once, as by default.
const std::atomic<bool>& install_stop_signals();

// The same by the program itself.
void request_stop();

}  // namespace sluice::apps
