// The device of a rank in the contract tests: emulated, or CUDA.
#pragma once
#include <memory>

#include "gpu/device.h"

namespace sluice::comm {

std::unique_ptr<gpu::Device> make_rank_device(int local_rank);

}  // namespace sluice::comm
