#include "engine/comm/nccl_comm.h"
#include "gpu/cuda_device.h"
#include "rank_device.h"

namespace sluice::comm {

std::unique_ptr<gpu::Device> make_rank_device(int local_rank) { return gpu::make_cuda_device({.memory = 1 << 30, .index = local_rank}); }

std::unique_ptr<Comm> make_rank_comm(Meeting meeting, const CommOptions& options) {
  return make_nccl_comm(std::move(meeting.mpi), std::move(meeting.control), options);
}

}  // namespace sluice::comm
