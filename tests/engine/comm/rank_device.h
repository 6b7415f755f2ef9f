// The device of a rank in the contract tests, emulated or CUDA, and its Comm.
#pragma once
#include <memory>

#include "engine/comm/connect.h"
#include "gpu/device.h"

namespace sluice::comm {

std::unique_ptr<gpu::Device> make_rank_device(int local_rank);
// Like make_comm; but on CUDA a world of one has NCCL too, so that one GPU can run it.
std::unique_ptr<Comm> make_rank_comm(Meeting meeting, const CommOptions& options);

}  // namespace sluice::comm
