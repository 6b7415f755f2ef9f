#include "engine/comm/direct_copy.h"

#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "base/error.h"

namespace sluice::comm {
namespace {

constexpr size_t kPiece = 4 << 20;

// Process numbers mean the same in processes where this is equal.
std::string own_space() {
  std::string boot;
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::getline(in, boot);
  std::error_code error;
  return boot + std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
}

struct Probe {
  pid_t pid;
  uint64_t address;  // of the token
  uint64_t token;
};

std::optional<size_t> read_memory(pid_t pid, uint64_t address, std::byte* to, size_t bytes) {
  const iovec local{to, bytes}, remote{reinterpret_cast<void*>(address), bytes};
  const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
  if (got <= 0) return std::nullopt;
  return static_cast<size_t>(got);
}

}  // namespace

DirectCopy::DirectCopy(Control& control, bool use) : pids_(static_cast<size_t>(control.world())) {
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // fails where there is no Yama, which is as good
  std::random_device random;
  const uint64_t token = (uint64_t{random()} << 32) | random();
  const Probe own{getpid(), reinterpret_cast<uint64_t>(&token), token};
  const auto spaces = control.gather(Topic::connect, own_space());
  const auto probes = control.gather(Topic::connect, std::as_bytes(std::span(&own, 1)));
  std::string mine;  // of this reader: '1' for each owner
  for (int rank = 0; rank < control.world(); ++rank) {
    const auto at = static_cast<size_t>(rank);
    Probe probe{};
    SLUICE_CHECK(probes[at].size() == sizeof probe);
    std::memcpy(&probe, probes[at].data(), sizeof probe);
    uint64_t seen = 0;
    const bool here = use && rank != control.rank() && spaces[at] == spaces[static_cast<size_t>(control.rank())];
    const auto got = here ? read_memory(probe.pid, probe.address, reinterpret_cast<std::byte*>(&seen), sizeof seen) : std::nullopt;
    const bool good = got == sizeof seen && seen == probe.token;
    if (good) pids_[at] = probe.pid;
    mine += good ? '1' : '0';
  }
  // Until all have read, the token stays where it is.
  for (const std::string& row : control.gather(Topic::connect, mine)) {
    readable_.emplace_back();
    for (const char mark : row) readable_.back().push_back(mark == '1');
  }
}

bool DirectCopy::any() const {
  return std::any_of(readable_.begin(), readable_.end(), [](const auto& row) { return std::find(row.begin(), row.end(), true) != row.end(); });
}

std::optional<size_t> DirectCopy::read(int owner, uint64_t address, std::byte* to, size_t bytes) const {
  return read_memory(pids_[static_cast<size_t>(owner)], address, to, std::min(bytes, kPiece));
}

}  // namespace sluice::comm
