// Memory of other ranks on this host, copied by the kernel without a socket in between (process_vm_readv).
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/comm/control.h"

namespace sluice::comm {

class DirectCopy {
 public:
  // Collective, on Topic::connect: finds out which ranks may read which others' memory by trying. Where the system forbids it, or `use` is
  // false on the reader, they may not. Lets other processes of the user trace this one, where a rule of Yama would not.
  DirectCopy(Control& control, bool use);

  bool may_read(int reader, int owner) const { return readable_[static_cast<size_t>(reader)][static_cast<size_t>(owner)]; }
  bool any() const;
  // From the owner's memory, which it must keep until it is told. Bytes read, at most 4 MiB at a time; none: the process has gone.
  std::optional<size_t> read(int owner, uint64_t address, std::byte* to, size_t bytes) const;

 private:
  std::vector<pid_t> pids_;                  // by rank; 0: elsewhere
  std::vector<std::vector<bool>> readable_;  // by reader, then owner
};

}  // namespace sluice::comm
