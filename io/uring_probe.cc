#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "base/error.h"
#include "io/system_error.h"
#include "io/uring_queue.h"
#include "io/uring_ring.h"

namespace sluice::io {
namespace {

int read_disabled_sysctl() {
  std::ifstream in("/proc/sys/kernel/io_uring_disabled");
  int value = -1;
  return in >> value ? value : -1;
}

const char* likely_cause(int error, int disabled) {
  switch (error) {
    case EPERM:
    case EACCES:
      return disabled > 0 ? "the administrator disabled it; sysctl kernel.io_uring_disabled=0 enables it"
                          : "a seccomp filter, as in Docker or containerd by default; --security-opt "
                            "seccomp=unconfined lifts it";
    case ENOSYS:
      return "the kernel was built without it, or a sandbox such as gVisor hides it";
    case EINVAL:
      return "the kernel or sandbox implements only a part of it";
    case ENOMEM:
      return "too little lockable memory on an old kernel; raise `ulimit -l`";
    case EMFILE:
      return "too many open files; raise `ulimit -n`";
    default:
      return "unknown";
  }
}

bool knows_operations(io_uring* ring) {
  io_uring_probe* probe = io_uring_get_probe_ring(ring);
  if (probe == nullptr) return false;
  bool all = true;
  for (const int operation :
       {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED, IORING_OP_FSYNC})
    all = all && io_uring_opcode_supported(probe, operation) != 0;
  io_uring_free_probe(probe);
  return all;
}

// One real read through the ring, of an event that is already there.
int read_through(io_uring* ring) {
  const int event = eventfd(1, EFD_CLOEXEC);
  if (event < 0) return errno;
  uint64_t value = 0;
  io_uring_prep_read(io_uring_get_sqe(ring), event, &value, sizeof(value), 0);
  int result = io_uring_submit(ring);
  io_uring_cqe* cqe = nullptr;
  if (result >= 0) {
    do {
      result = io_uring_wait_cqe(ring, &cqe);
    } while (result == -EINTR);
  }
  if (result >= 0) result = cqe->res;
  ::close(event);
  return result < 0 ? -result : value == 1 ? 0 : EIO;
}

}  // namespace

bool raise_memlock_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
}

int set_up_ring(io_uring* ring, unsigned entries, std::string* flags) {
  struct Choice {
    unsigned flags;
    const char* name;
  };
  // One issuer whose completions run only when it asks: no interrupts into threads that compute.
  constexpr Choice kChoices[] = {
      {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, "SINGLE_ISSUER, DEFER_TASKRUN"},
      {IORING_SETUP_SINGLE_ISSUER, "SINGLE_ISSUER"},
      {0, "no flags"}};
  int result = -EINVAL;
  for (const Choice& choice : kChoices) {
    result = io_uring_queue_init(entries, ring, choice.flags);
    // Locked memory is counted per user: other processes' rings may have used up the soft limit.
    if (result == -ENOMEM && raise_memlock_limit()) result = io_uring_queue_init(entries, ring, choice.flags);
    *flags = choice.name;
    if (result != -EINVAL) break;
  }
  if (result != 0) return result;
  io_uring_ring_dontfork(ring);
  io_uring_register_ring_fd(ring);  // saves a look-up at every call; refused by kernels before 5.18
  return 0;
}

std::string UringStatus::explanation() const {
  if (usable()) return fmt::format("usable, with {}", flags);
  return fmt::format("{} failed with {}; kernel.io_uring_disabled is {}; likely cause: {}", step,
                     errno_text(error), disabled < 0 ? "not there" : std::to_string(disabled),
                     likely_cause(error, disabled));
}

UringStatus probe_uring() {
  UringStatus status;
  status.disabled = read_disabled_sysctl();
  io_uring ring;
  status.step = "io_uring_setup";
  status.error = -set_up_ring(&ring, 4, &status.flags);
  if (status.error != 0) return status;
  status.step = "looking for the operations needed";
  status.error = knows_operations(&ring) ? 0 : EINVAL;
  if (status.usable()) {
    status.step = "a first read";
    status.error = read_through(&ring);
  }
  io_uring_queue_exit(&ring);
  return status;
}

}  // namespace sluice::io
