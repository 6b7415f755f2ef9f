// NCCL's and CUDA's results as base::Error. Internal to the NCCL communicator.
#pragma once
#include <nccl.h>

namespace sluice::comm::nccl {

// Throws Error(peer) for anything but success and "in progress", with what NCCL last said. comm may be null.
void check(ncclResult_t result, const char* call, ncclComm_t comm = nullptr);
void check(cudaError_t result, const char* call);

}  // namespace sluice::comm::nccl
