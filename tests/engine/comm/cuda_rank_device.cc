#include "gpu/cuda_device.h"
#include "rank_device.h"

namespace sluice::comm {

std::unique_ptr<gpu::Device> make_rank_device(int local_rank) { return gpu::make_cuda_device({.memory = 1 << 30, .index = local_rank}); }

}  // namespace sluice::comm
