// Ranks that are processes, data over TCP: what `--nproc` and torchrun start, and srun without PMIx. Ranks of one host copy from each
// other's memory directly where the system allows it (direct_copy.h).
#pragma once
#include <memory>

#include "engine/comm/comm.h"

namespace sluice::comm {

// Collective. direct: false in tests of what TCP alone does. Errors: peer (a rank cannot be reached).
std::unique_ptr<Comm> make_socket_comm(std::shared_ptr<Control> control, const CommOptions& options, bool direct = true);

}  // namespace sluice::comm
