// Ranks with a CUDA device each, data over NCCL 2.28.
#pragma once
#include <memory>

#include "engine/comm/comm.h"
#include "engine/comm/mpi_session.h"

namespace sluice::comm {

// Collective; one rank for each GPU. session: kept for as long as the Comm lives; may be null. Error(config): built without NCCL. Error(peer): NCCL
// cannot connect the ranks.
std::unique_ptr<Comm> make_nccl_comm(std::shared_ptr<MpiSession> session, std::shared_ptr<Control> control, const CommOptions& options);

}  // namespace sluice::comm
