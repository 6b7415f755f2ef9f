// Ranks that are processes, data over TCP: what `--nproc` and torchrun start, and srun without PMIx. Between ranks of one host it stays in
// the kernel's memory.
#pragma once
#include <memory>

#include "engine/comm/comm.h"

namespace sluice::comm {

// Collective. Errors: peer (a rank cannot be reached).
std::unique_ptr<Comm> make_socket_comm(std::unique_ptr<Control> control, const CommOptions& options);

}  // namespace sluice::comm
